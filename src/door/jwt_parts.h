/* What the files of the JWT reader share. Not for others. */
#ifndef DOOR_JWT_PARTS_H
#define DOOR_JWT_PARTS_H

#include "door/jwt.h"

/* base64url without padding (RFC 7515 2), strict: no other characters, no bits beyond the last byte. */
bool jwt_decode(struct arena *arena, struct str text, struct str *out);

#endif
