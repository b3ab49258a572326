#include "core/schema_meta.h"

#include <stddef.h>

/* Compact transcripts of the published meta-schemas; titles, comments and formats without consequence are left out.
 * Written with ' for ", which none of them contains, so that they can be read. */

/* clang-format off */
static const char schema_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/schema','$dynamicAnchor':'meta',"
    "  '$vocabulary':{"
    "    'https://json-schema.org/draft/2020-12/vocab/core':true,"
    "    'https://json-schema.org/draft/2020-12/vocab/applicator':true,"
    "    'https://json-schema.org/draft/2020-12/vocab/unevaluated':true,"
    "    'https://json-schema.org/draft/2020-12/vocab/validation':true,"
    "    'https://json-schema.org/draft/2020-12/vocab/meta-data':true,"
    "    'https://json-schema.org/draft/2020-12/vocab/format-annotation':true,"
    "    'https://json-schema.org/draft/2020-12/vocab/content':true"
    "  },"
    "  'allOf':["
    "    {'$ref':'meta/core'},{'$ref':'meta/applicator'},{'$ref':'meta/unevaluated'},{'$ref':'meta/validation'},"
    "    {'$ref':'meta/meta-data'},{'$ref':'meta/format-annotation'},{'$ref':'meta/content'}"
    "  ],"
    "  'type':['object','boolean'],"
    "  'properties':{"
    "    'definitions':{'type':'object','additionalProperties':{'$dynamicRef':'#meta'},'deprecated':true,'default':{}},"
    "    'dependencies':{"
    "      'type':'object',"
    "      'additionalProperties':{'anyOf':[{'$dynamicRef':'#meta'},{'$ref':'meta/validation#/$defs/stringArray'}]},"
    "      'deprecated':true,'default':{}"
    "    },"
    "    '$recursiveAnchor':{'$ref':'meta/core#/$defs/anchorString','deprecated':true},"
    "    '$recursiveRef':{'$ref':'meta/core#/$defs/uriReferenceString','deprecated':true}"
    "  }"
    "}";

static const char core_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/core','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/core':true},'type':['object','boolean'],"
    "  'properties':{"
    "    '$id':{'$ref':'#/$defs/uriReferenceString','pattern':'^[^#]*#?$'},"
    "    '$schema':{'$ref':'#/$defs/uriString'},'$ref':{'$ref':'#/$defs/uriReferenceString'},"
    "    '$anchor':{'$ref':'#/$defs/anchorString'},'$dynamicRef':{'$ref':'#/$defs/uriReferenceString'},"
    "    '$dynamicAnchor':{'$ref':'#/$defs/anchorString'},"
    "    '$vocabulary':{'type':'object','propertyNames':{'$ref':'#/$defs/uriString'},'additionalProperties':{'type':'boolean'}},"
    "    '$comment':{'type':'string'},'$defs':{'type':'object','additionalProperties':{'$dynamicRef':'#meta'}}"
    "  },"
    "  '$defs':{"
    "    'anchorString':{'type':'string','pattern':'^[A-Za-z_][-A-Za-z0-9._]*$'},"
    "    'uriString':{'type':'string','format':'uri'},"
    "    'uriReferenceString':{'type':'string','format':'uri-reference'}"
    "  }"
    "}";

static const char applicator_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/applicator','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/applicator':true},'type':['object','boolean'],"
    "  'properties':{"
    "    'prefixItems':{'$ref':'#/$defs/schemaArray'},'items':{'$dynamicRef':'#meta'},"
    "    'contains':{'$dynamicRef':'#meta'},'additionalProperties':{'$dynamicRef':'#meta'},"
    "    'properties':{'type':'object','additionalProperties':{'$dynamicRef':'#meta'},'default':{}},"
    "    'patternProperties':{"
    "      'type':'object','additionalProperties':{'$dynamicRef':'#meta'},'propertyNames':{'format':'regex'},"
    "      'default':{}"
    "    },"
    "    'dependentSchemas':{'type':'object','additionalProperties':{'$dynamicRef':'#meta'},'default':{}},"
    "    'propertyNames':{'$dynamicRef':'#meta'},'if':{'$dynamicRef':'#meta'},'then':{'$dynamicRef':'#meta'},"
    "    'else':{'$dynamicRef':'#meta'},'allOf':{'$ref':'#/$defs/schemaArray'},"
    "    'anyOf':{'$ref':'#/$defs/schemaArray'},'oneOf':{'$ref':'#/$defs/schemaArray'},"
    "    'not':{'$dynamicRef':'#meta'}"
    "  },"
    "  '$defs':{'schemaArray':{'type':'array','minItems':1,'items':{'$dynamicRef':'#meta'}}}"
    "}";

static const char unevaluated_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/unevaluated','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/unevaluated':true},"
    "  'type':['object','boolean'],"
    "  'properties':{'unevaluatedItems':{'$dynamicRef':'#meta'},'unevaluatedProperties':{'$dynamicRef':'#meta'}}"
    "}";

static const char validation_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/validation','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/validation':true},'type':['object','boolean'],"
    "  'properties':{"
    "    'type':{"
    "      'anyOf':["
    "        {'$ref':'#/$defs/simpleTypes'},"
    "        {'type':'array','items':{'$ref':'#/$defs/simpleTypes'},'minItems':1,'uniqueItems':true}"
    "      ]"
    "    },"
    "    'const':true,'enum':{'type':'array','items':true},'multipleOf':{'type':'number','exclusiveMinimum':0},"
    "    'maximum':{'type':'number'},'exclusiveMaximum':{'type':'number'},'minimum':{'type':'number'},"
    "    'exclusiveMinimum':{'type':'number'},'maxLength':{'$ref':'#/$defs/nonNegativeInteger'},"
    "    'minLength':{'$ref':'#/$defs/nonNegativeIntegerDefault0'},'pattern':{'type':'string','format':'regex'},"
    "    'maxItems':{'$ref':'#/$defs/nonNegativeInteger'},"
    "    'minItems':{'$ref':'#/$defs/nonNegativeIntegerDefault0'},"
    "    'uniqueItems':{'type':'boolean','default':false},'maxContains':{'$ref':'#/$defs/nonNegativeInteger'},"
    "    'minContains':{'$ref':'#/$defs/nonNegativeInteger','default':1},"
    "    'maxProperties':{'$ref':'#/$defs/nonNegativeInteger'},"
    "    'minProperties':{'$ref':'#/$defs/nonNegativeIntegerDefault0'},'required':{'$ref':'#/$defs/stringArray'},"
    "    'dependentRequired':{'type':'object','additionalProperties':{'$ref':'#/$defs/stringArray'}}"
    "  },"
    "  '$defs':{"
    "    'nonNegativeInteger':{'type':'integer','minimum':0},"
    "    'nonNegativeIntegerDefault0':{'$ref':'#/$defs/nonNegativeInteger','default':0},"
    "    'simpleTypes':{'enum':['array','boolean','integer','null','number','object','string']},"
    "    'stringArray':{'type':'array','items':{'type':'string'},'uniqueItems':true,'default':[]}"
    "  }"
    "}";

static const char meta_data_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/meta-data','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/meta-data':true},'type':['object','boolean'],"
    "  'properties':{"
    "    'title':{'type':'string'},'description':{'type':'string'},'default':true,"
    "    'deprecated':{'type':'boolean','default':false},'readOnly':{'type':'boolean','default':false},"
    "    'writeOnly':{'type':'boolean','default':false},'examples':{'type':'array','items':true}"
    "  }"
    "}";

static const char format_annotation_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/format-annotation','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/format-annotation':true},"
    "  'type':['object','boolean'],'properties':{'format':{'type':'string'}}"
    "}";

static const char format_assertion_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/format-assertion','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/format-assertion':true},"
    "  'type':['object','boolean'],'properties':{'format':{'type':'string'}}"
    "}";

static const char content_2020[] =
    "{"
    "  '$schema':'https://json-schema.org/draft/2020-12/schema',"
    "  '$id':'https://json-schema.org/draft/2020-12/meta/content','$dynamicAnchor':'meta',"
    "  '$vocabulary':{'https://json-schema.org/draft/2020-12/vocab/content':true},'type':['object','boolean'],"
    "  'properties':{"
    "    'contentEncoding':{'type':'string'},'contentMediaType':{'type':'string'},"
    "    'contentSchema':{'$dynamicRef':'#meta'}"
    "  }"
    "}";

static const char schema_7[] =
    "{"
    "  '$schema':'http://json-schema.org/draft-07/schema#','$id':'http://json-schema.org/draft-07/schema#',"
    "  'definitions':{"
    "    'schemaArray':{'type':'array','minItems':1,'items':{'$ref':'#'}},"
    "    'nonNegativeInteger':{'type':'integer','minimum':0},"
    "    'nonNegativeIntegerDefault0':{'allOf':[{'$ref':'#/definitions/nonNegativeInteger'},{'default':0}]},"
    "    'simpleTypes':{'enum':['array','boolean','integer','null','number','object','string']},"
    "    'stringArray':{'type':'array','items':{'type':'string'},'uniqueItems':true,'default':[]}"
    "  },"
    "  'type':['object','boolean'],"
    "  'properties':{"
    "    '$id':{'type':'string','format':'uri-reference'},'$schema':{'type':'string','format':'uri'},"
    "    '$ref':{'type':'string','format':'uri-reference'},'$comment':{'type':'string'},"
    "    'title':{'type':'string'},'description':{'type':'string'},'default':true,"
    "    'readOnly':{'type':'boolean','default':false},'writeOnly':{'type':'boolean','default':false},"
    "    'examples':{'type':'array','items':true},'multipleOf':{'type':'number','exclusiveMinimum':0},"
    "    'maximum':{'type':'number'},'exclusiveMaximum':{'type':'number'},'minimum':{'type':'number'},"
    "    'exclusiveMinimum':{'type':'number'},'maxLength':{'$ref':'#/definitions/nonNegativeInteger'},"
    "    'minLength':{'$ref':'#/definitions/nonNegativeIntegerDefault0'},"
    "    'pattern':{'type':'string','format':'regex'},'additionalItems':{'$ref':'#'},"
    "    'items':{'anyOf':[{'$ref':'#'},{'$ref':'#/definitions/schemaArray'}],'default':true},"
    "    'maxItems':{'$ref':'#/definitions/nonNegativeInteger'},"
    "    'minItems':{'$ref':'#/definitions/nonNegativeIntegerDefault0'},"
    "    'uniqueItems':{'type':'boolean','default':false},'contains':{'$ref':'#'},"
    "    'maxProperties':{'$ref':'#/definitions/nonNegativeInteger'},"
    "    'minProperties':{'$ref':'#/definitions/nonNegativeIntegerDefault0'},"
    "    'required':{'$ref':'#/definitions/stringArray'},'additionalProperties':{'$ref':'#'},"
    "    'definitions':{'type':'object','additionalProperties':{'$ref':'#'},'default':{}},"
    "    'properties':{'type':'object','additionalProperties':{'$ref':'#'},'default':{}},"
    "    'patternProperties':{'type':'object','additionalProperties':{'$ref':'#'},'propertyNames':{'format':'regex'},'default':{}},"
    "    'dependencies':{'type':'object','additionalProperties':{'anyOf':[{'$ref':'#'},{'$ref':'#/definitions/stringArray'}]}},"
    "    'propertyNames':{'$ref':'#'},'const':true,'enum':{'type':'array','items':true},"
    "    'type':{"
    "      'anyOf':["
    "        {'$ref':'#/definitions/simpleTypes'},"
    "        {'type':'array','items':{'$ref':'#/definitions/simpleTypes'},'minItems':1,'uniqueItems':true}"
    "      ]"
    "    },"
    "    'format':{'type':'string'},'contentMediaType':{'type':'string'},'contentEncoding':{'type':'string'},"
    "    'if':{'$ref':'#'},'then':{'$ref':'#'},'else':{'$ref':'#'},'allOf':{'$ref':'#/definitions/schemaArray'},"
    "    'anyOf':{'$ref':'#/definitions/schemaArray'},'oneOf':{'$ref':'#/definitions/schemaArray'},"
    "    'not':{'$ref':'#'}"
    "  },"
    "  'default':true"
    "}";

/* clang-format on */

static const struct meta {
    const char *uri;
    const char *text;
} metas[] = {
    {"https://json-schema.org/draft/2020-12/schema", schema_2020},
    {"https://json-schema.org/draft/2020-12/meta/core", core_2020},
    {"https://json-schema.org/draft/2020-12/meta/applicator", applicator_2020},
    {"https://json-schema.org/draft/2020-12/meta/unevaluated", unevaluated_2020},
    {"https://json-schema.org/draft/2020-12/meta/validation", validation_2020},
    {"https://json-schema.org/draft/2020-12/meta/meta-data", meta_data_2020},
    {"https://json-schema.org/draft/2020-12/meta/format-annotation", format_annotation_2020},
    {"https://json-schema.org/draft/2020-12/meta/format-assertion", format_assertion_2020},
    {"https://json-schema.org/draft/2020-12/meta/content", content_2020},
    {"http://json-schema.org/draft-07/schema", schema_7},
};

static struct str with_double_quotes(struct arena *arena, const char *text)
{
    char *copy = arena_copy_text(arena, text);
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    return str_of(copy);
}

struct str schema_meta_text(struct arena *arena, struct str uri)
{
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++)
        if (str_is(uri, metas[i].uri))
            return with_double_quotes(arena, metas[i].text);
    return STR_NONE;
}
