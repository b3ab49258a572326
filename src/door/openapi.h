/* openapi.json (OpenAPI 3.1), made from the table of routes and the schemas of bodies and answers. */
#ifndef DOOR_OPENAPI_H
#define DOOR_OPENAPI_H

#include "base/buf.h"

void openapi_write(struct buf *out);

#endif
