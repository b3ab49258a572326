/* The meta-schemas of the two dialects, so that schemas may refer to them without anything being fetched. */
#ifndef CORE_SCHEMA_META_H
#define CORE_SCHEMA_META_H

#include "base/arena.h"
#include "base/str.h"

/* The text of the meta-schema of that URI (without fragment), in the arena; absent when it is not one of them. */
struct str schema_meta_text(struct arena *arena, struct str uri);

#endif
