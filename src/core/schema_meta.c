#include "core/schema_meta.h"

#include <stddef.h>

/* Compact transcripts of the published meta-schemas: titles, comments and "format" of no consequence are left out. */

#define D                "https://json-schema.org/draft/2020-12/"
#define HEAD(name)       "{\"$schema\":\"" D "schema\",\"$id\":\"" D name "\",\"$dynamicAnchor\":\"meta\","
#define VOCABULARY(name) "\"$vocabulary\":{\"" D "vocab/" name "\":true},"
#define BOTH             "\"type\":[\"object\",\"boolean\"],"
#define SELF             "{\"$dynamicRef\":\"#meta\"}"
#define MAP_OF_SELF      "{\"type\":\"object\",\"additionalProperties\":" SELF ",\"default\":{}}"
#define REF(to)          "{\"$ref\":\"" to "\"}"
#define TEXT             "{\"type\":\"string\"}"

static const char schema_2020[] =
    HEAD("schema") "\"$vocabulary\":{\"" D "vocab/core\":true,\"" D "vocab/applicator\":true,\"" D
                   "vocab/unevaluated\":true,"
                   "\"" D "vocab/validation\":true,\"" D "vocab/meta-data\":true,\"" D "vocab/format-annotation\":true,"
                   "\"" D "vocab/content\":true},"
                   "\"allOf\":[" REF("meta/core") "," REF("meta/applicator") "," REF("meta/unevaluated") "," REF("meta/"
                                                                                                                 "valid"
                                                                                                                 "atio"
                                                                                                                 "n") "," REF(
                       "meta/meta-data") "," REF("meta/format-annotation") "," REF("meta/content") "]," BOTH
                                                                                                   "\"properties\":{"
                                                                                                   "\"definitions\":{"
                                                                                                   "\"type\":"
                                                                                                   "\"object\","
                                                                                                   "\"additionalPropert"
                                                                                                   "ies\":" SELF
                                                                                                   ",\"deprecated\":"
                                                                                                   "true,\"default\":{}"
                                                                                                   "},"
                                                                                                   "\"dependencies\":{"
                                                                                                   "\"type\":"
                                                                                                   "\"object\","
                                                                                                   "\"additionalPropert"
                                                                                                   "ies\":{\"anyOf\":"
                                                                                                   "[" SELF
                                                                                                   "," REF("meta/"
                                                                                                           "validation#"
                                                                                                           "/$defs/"
                                                                                                           "stringArra"
                                                                                                           "y") "]},"
                                                                                                                "\"depr"
                                                                                                                "ecated"
                                                                                                                "\":"
                                                                                                                "true,"
                                                                                                                "\"defa"
                                                                                                                "ult\":"
                                                                                                                "{}},"
                                                                                                                "\"$"
                                                                                                                "recurs"
                                                                                                                "iveAnc"
                                                                                                                "hor\":"
                                                                                                                "{\"$"
                                                                                                                "ref\":"
                                                                                                                "\"meta"
                                                                                                                "/core#"
                                                                                                                "/$"
                                                                                                                "defs/"
                                                                                                                "anchor"
                                                                                                                "String"
                                                                                                                "\","
                                                                                                                "\"depr"
                                                                                                                "ecated"
                                                                                                                "\":"
                                                                                                                "true},"
                                                                                                                "\"$"
                                                                                                                "recurs"
                                                                                                                "iveRef"
                                                                                                                "\":{"
                                                                                                                "\"$"
                                                                                                                "ref\":"
                                                                                                                "\"meta"
                                                                                                                "/core#"
                                                                                                                "/$"
                                                                                                                "defs/"
                                                                                                                "uriRef"
                                                                                                                "erence"
                                                                                                                "String"
                                                                                                                "\","
                                                                                                                "\"depr"
                                                                                                                "ecated"
                                                                                                                "\":"
                                                                                                                "true}}"
                                                                                                                "}";

static const char core_2020[] = HEAD("meta/core") VOCABULARY("core")
    BOTH "\"properties\":{"
         "\"$id\":{\"$ref\":\"#/$defs/uriReferenceString\",\"pattern\":\"^[^#]*#?$\"},"
         "\"$schema\":" REF("#/$defs/uriString") ",\"$ref\":" REF(
             "#/$defs/uriReferenceString") ","
                                           "\"$anchor\":" REF("#/$defs/anchorString") ",\"$dynamicRef\":" REF(
                                               "#/$defs/uriReferenceString") ","
                                                                             "\"$dynamicAnchor\":" REF(
                                                                                 "#/$defs/anchorString") ","
                                                                                                         "\"$"
                                                                                                         "vocabulary\":"
                                                                                                         "{\"type\":"
                                                                                                         "\"object\","
                                                                                                         "\"propertyNam"
                                                                                                         "es\":" REF(
                                                                                                             "#/$defs/"
                                                                                                             "uriStrin"
                                                                                                             "g") ","
                                                                                                                  "\"ad"
                                                                                                                  "diti"
                                                                                                                  "onal"
                                                                                                                  "Prop"
                                                                                                                  "erti"
                                                                                                                  "es\""
                                                                                                                  ":{"
                                                                                                                  "\"ty"
                                                                                                                  "pe\""
                                                                                                                  ":\"b"
                                                                                                                  "oole"
                                                                                                                  "an\""
                                                                                                                  "}},"
                                                                                                                  "\"$"
                                                                                                                  "comm"
                                                                                                                  "ent"
                                                                                                                  "\""
                                                                                                                  ":" TEXT
                                                                                                                  ",\"$"
                                                                                                                  "defs"
                                                                                                                  "\":{"
                                                                                                                  "\"ty"
                                                                                                                  "pe\""
                                                                                                                  ":\"o"
                                                                                                                  "bjec"
                                                                                                                  "t\","
                                                                                                                  "\"ad"
                                                                                                                  "diti"
                                                                                                                  "onal"
                                                                                                                  "Prop"
                                                                                                                  "erti"
                                                                                                                  "es\""
                                                                                                                  ":" SELF
                                                                                                                  "}},"
                                                                                                                  "\"$"
                                                                                                                  "defs"
                                                                                                                  "\":{"
                                                                                                                  "\"an"
                                                                                                                  "chor"
                                                                                                                  "Stri"
                                                                                                                  "ng\""
                                                                                                                  ":{"
                                                                                                                  "\"ty"
                                                                                                                  "pe\""
                                                                                                                  ":\"s"
                                                                                                                  "trin"
                                                                                                                  "g\","
                                                                                                                  "\"pa"
                                                                                                                  "tter"
                                                                                                                  "n\":"
                                                                                                                  "\"^["
                                                                                                                  "A-"
                                                                                                                  "Za-"
                                                                                                                  "z_]["
                                                                                                                  "-A-"
                                                                                                                  "Za-"
                                                                                                                  "z0-"
                                                                                                                  "9._]"
                                                                                                                  "*$"
                                                                                                                  "\"},"
                                                                                                                  "\"ur"
                                                                                                                  "iStr"
                                                                                                                  "ing"
                                                                                                                  "\":{"
                                                                                                                  "\"ty"
                                                                                                                  "pe\""
                                                                                                                  ":\"s"
                                                                                                                  "trin"
                                                                                                                  "g\","
                                                                                                                  "\"fo"
                                                                                                                  "rmat"
                                                                                                                  "\":"
                                                                                                                  "\"ur"
                                                                                                                  "i\"}"
                                                                                                                  ","
                                                                                                                  "\"ur"
                                                                                                                  "iRef"
                                                                                                                  "eren"
                                                                                                                  "ceSt"
                                                                                                                  "ring"
                                                                                                                  "\":{"
                                                                                                                  "\"ty"
                                                                                                                  "pe\""
                                                                                                                  ":\"s"
                                                                                                                  "trin"
                                                                                                                  "g\","
                                                                                                                  "\"fo"
                                                                                                                  "rmat"
                                                                                                                  "\":"
                                                                                                                  "\"ur"
                                                                                                                  "i-"
                                                                                                                  "refe"
                                                                                                                  "renc"
                                                                                                                  "e\"}"
                                                                                                                  "}}";

static const char applicator_2020[] = HEAD("meta/applicator") VOCABULARY("applicator") BOTH
    "\"properties\":{"
    "\"prefixItems\":" REF(
        "#/$defs/schemaArray") ",\"items\":" SELF ",\"contains\":" SELF ","
                               "\"additionalProperties\":" SELF ",\"properties\":" MAP_OF_SELF ","
                               "\"patternProperties\":{\"type\":\"object\",\"additionalProperties\":" SELF ","
                               "\"propertyNames\":{\"format\":\"regex\"},\"default\":{}},"
                               "\"dependentSchemas\":" MAP_OF_SELF ",\"propertyNames\":" SELF ",\"if\":" SELF
                               ",\"then\":" SELF ",\"else\":" SELF ","
                               "\"allOf\":" REF("#/$defs/schemaArray") ",\"anyOf\":" REF(
                                   "#/$defs/schemaArray") ","
                                                          "\"oneOf\":" REF(
                                                              "#/$defs/schemaArray") ",\"not\":" SELF "},"
                                                                                     "\"$defs\":{\"schemaArray\":{"
                                                                                     "\"type\":\"array\",\"minItems\":"
                                                                                     "1,\"items\":" SELF "}}}";

static const char unevaluated_2020[] = HEAD("meta/unevaluated") VOCABULARY("unevaluated") BOTH
    "\"properties\":{\"unevaluatedItems\":" SELF ",\"unevaluatedProperties\":" SELF "}}";

static const char
    validation_2020[] =
        HEAD("meta/validation")
            VOCABULARY("validation")
                BOTH "\"properties\":{"
                     "\"type\":{\"anyOf\":[" REF("#/$defs/simpleTypes") ","
                                                                        "{\"type\":\"array\",\"items\":" REF(
                                                                            "#/$defs/simpleTypes") ",\"minItems\":1,"
                                                                                                   "\"uniqueItems\":"
                                                                                                   "true}]},"
                                                                                                   "\"const\":true,"
                                                                                                   "\"enum\":{\"type\":"
                                                                                                   "\"array\","
                                                                                                   "\"items\":true},"
                                                                                                   "\"multipleOf\":{"
                                                                                                   "\"type\":"
                                                                                                   "\"number\","
                                                                                                   "\"exclusiveMinimum"
                                                                                                   "\":0},"
                                                                                                   "\"maximum\":{"
                                                                                                   "\"type\":"
                                                                                                   "\"number\"},"
                                                                                                   "\"exclusiveMaximum"
                                                                                                   "\":{\"type\":"
                                                                                                   "\"number\"},"
                                                                                                   "\"minimum\":{"
                                                                                                   "\"type\":"
                                                                                                   "\"number\"},"
                                                                                                   "\"exclusiveMinimum"
                                                                                                   "\":{\"type\":"
                                                                                                   "\"number\"},"
                                                                                                   "\"maxLength\":" REF("#/$defs/nonNegativeInteger") ",\"minLength\":" REF("#/$defs/nonNegativeIntegerDefault0") ","
                                                                                                                                                                                                                  "\"pattern\":{\"type\":\"string\",\"format\":\"regex\"},"
                                                                                                                                                                                                                  "\"maxItems\":" REF("#/$defs/nonNegativeInteger") ",\"minItems\":" REF("#/$defs/nonNegativeIntegerDefault0") ","
                                                                                                                                                                                                                                                                                                                               "\"uniqueItems\":{\"type\":\"boolean\",\"default\":false},"
                                                                                                                                                                                                                                                                                                                               "\"maxContains\":" REF("#/$defs/nonNegativeInteger") ","
                                                                                                                                                                                                                                                                                                                                                                                    "\"minContains\":{\"$ref\":\"#/$defs/nonNegativeInteger\",\"default\":1},"
                                                                                                                                                                                                                                                                                                                                                                                    "\"maxProperties\":" REF(
                                                                                                                                                                                                                                                                                                                                                                                        "#/$defs/nonNegativeInteger") ","
                                                                                                                                                                                                                                                                                                                                                                                                                      "\"minProperties\":" REF(
                                                                                                                                                                                                                                                                                                                                                                                                                          "#/$defs/nonNegativeIntegerDefault0") ",\"required\":" REF("#/$defs/stringArray") ","
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                            "\"dependentRequired\":{\"type\":\"object\",\"additionalProperties\":" REF("#/$defs/stringArray") "}},"
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "\"$defs\":{\"nonNegativeInteger\":{\"type\":\"integer\",\"minimum\":0},"
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "\"nonNegativeIntegerDefault0\":{\"$ref\":\"#/$defs/nonNegativeInteger\",\"default\":0},"
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "\"simpleTypes\":{\"enum\":[\"array\",\"boolean\",\"integer\",\"null\",\"number\",\"object\",\"string\"]},"
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "\"stringArray\":{\"type\":\"array\",\"items\":" TEXT
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              ",\"uniqueItems\":true,\"default\":[]}}}";

static const char meta_data_2020[] = HEAD("meta/meta-data") VOCABULARY("meta-data") BOTH
    "\"properties\":{"
    "\"title\":" TEXT ",\"description\":" TEXT ",\"default\":true,"
    "\"deprecated\":{\"type\":\"boolean\",\"default\":false},\"readOnly\":{\"type\":\"boolean\",\"default\":false},"
    "\"writeOnly\":{\"type\":\"boolean\",\"default\":false},\"examples\":{\"type\":\"array\",\"items\":true}}}";

static const char format_annotation_2020[] =
    HEAD("meta/format-annotation") VOCABULARY("format-annotation") BOTH "\"properties\":{\"format\":" TEXT "}}";

static const char format_assertion_2020[] =
    HEAD("meta/format-assertion") VOCABULARY("format-assertion") BOTH "\"properties\":{\"format\":" TEXT "}}";

static const char content_2020[] = HEAD("meta/content") VOCABULARY("content") BOTH
    "\"properties\":{\"contentEncoding\":" TEXT ",\"contentMediaType\":" TEXT ",\"contentSchema\":" SELF "}}";

#define ROOT             "{\"$ref\":\"#\"}"
#define COUNT7           REF("#/definitions/nonNegativeInteger")
#define COUNT7_DEFAULT_0 REF("#/definitions/nonNegativeIntegerDefault0")
#define MAP7             "{\"type\":\"object\",\"additionalProperties\":" ROOT ",\"default\":{}}"

static const char schema_7[] =
    "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$id\":\"http://json-schema.org/draft-07/schema#\","
    "\"definitions\":{\"schemaArray\":{\"type\":\"array\",\"minItems\":1,\"items\":" ROOT "},"
    "\"nonNegativeInteger\":{\"type\":\"integer\",\"minimum\":0},"
    "\"nonNegativeIntegerDefault0\":{\"allOf\":[" COUNT7 ",{\"default\":0}]},"
    "\"simpleTypes\":{\"enum\":[\"array\",\"boolean\",\"integer\",\"null\",\"number\",\"object\",\"string\"]},"
    "\"stringArray\":{\"type\":\"array\",\"items\":" TEXT ",\"uniqueItems\":true,\"default\":[]}}," BOTH
    "\"properties\":{"
    "\"$id\":{\"type\":\"string\",\"format\":\"uri-reference\"},\"$schema\":{\"type\":\"string\",\"format\":\"uri\"},"
    "\"$ref\":{\"type\":\"string\",\"format\":\"uri-reference\"},\"$comment\":" TEXT ",\"title\":" TEXT ","
    "\"description\":" TEXT ",\"default\":true,\"readOnly\":{\"type\":\"boolean\",\"default\":false},"
    "\"writeOnly\":{\"type\":\"boolean\",\"default\":false},\"examples\":{\"type\":\"array\",\"items\":true},"
    "\"multipleOf\":{\"type\":\"number\",\"exclusiveMinimum\":0},"
    "\"maximum\":{\"type\":\"number\"},\"exclusiveMaximum\":{\"type\":\"number\"},"
    "\"minimum\":{\"type\":\"number\"},\"exclusiveMinimum\":{\"type\":\"number\"},"
    "\"maxLength\":" COUNT7 ",\"minLength\":" COUNT7_DEFAULT_0 ","
    "\"pattern\":{\"type\":\"string\",\"format\":\"regex\"},\"additionalItems\":" ROOT ","
    "\"items\":{\"anyOf\":[" ROOT "," REF(
        "#/definitions/schemaArray") "],\"default\":true},"
                                     "\"maxItems\":" COUNT7 ",\"minItems\":" COUNT7_DEFAULT_0 ","
                                     "\"uniqueItems\":{\"type\":\"boolean\",\"default\":false},\"contains\":" ROOT ","
                                     "\"maxProperties\":" COUNT7 ",\"minProperties\":" COUNT7_DEFAULT_0 ","
                                     "\"required\":" REF(
                                         "#/definitions/stringArray") ",\"additionalProperties\":" ROOT ","
                                                                      "\"definitions\":" MAP7 ",\"properties\":" MAP7
                                                                      ","
                                                                      "\"patternProperties\":{\"type\":\"object\","
                                                                      "\"additionalProperties\":" ROOT ","
                                                                      "\"propertyNames\":{\"format\":\"regex\"},"
                                                                      "\"default\":{}},"
                                                                      "\"dependencies\":{\"type\":\"object\","
                                                                      "\"additionalProperties\":{\"anyOf\":[" ROOT
                                                                      "," REF(
                                                                          "#/definitions/stringArray") "]}},"
                                                                                                       "\"propertyNames"
                                                                                                       "\":" ROOT
                                                                                                       ",\"const\":"
                                                                                                       "true,"
                                                                                                       "\"enum\":{"
                                                                                                       "\"type\":"
                                                                                                       "\"array\","
                                                                                                       "\"items\":true}"
                                                                                                       ","
                                                                                                       "\"type\":{"
                                                                                                       "\"anyOf\":"
                                                                                                       "[" REF(
                                                                                                           "#/"
                                                                                                           "definitions"
                                                                                                           "/simpleType"
                                                                                                           "s") ","
                                                                                                                "{\"typ"
                                                                                                                "e\":"
                                                                                                                "\"arra"
                                                                                                                "y\","
                                                                                                                "\"item"
                                                                                                                "s\""
                                                                                                                ":" REF(
                                                                                                                    "#/"
                                                                                                                    "de"
                                                                                                                    "fi"
                                                                                                                    "ni"
                                                                                                                    "ti"
                                                                                                                    "on"
                                                                                                                    "s/"
                                                                                                                    "si"
                                                                                                                    "mp"
                                                                                                                    "le"
                                                                                                                    "Ty"
                                                                                                                    "pe"
                                                                                                                    "s") ",\"minItems\":1,\"uniqueItems\":true}]},"
                                                                                                                         "\"format\":" TEXT
                                                                                                                         ",\"contentMediaType\":" TEXT
                                                                                                                         ",\"contentEncoding\":" TEXT
                                                                                                                         ","
                                                                                                                         "\"if\":" ROOT
                                                                                                                         ",\"then\":" ROOT
                                                                                                                         ",\"else\":" ROOT
                                                                                                                         ",\"allOf\":" REF(
                                                                                                                             "#/definitions/schemaArray") ","
                                                                                                                                                          "\"anyOf\":" REF("#/definitions/schemaArray") ",\"oneOf\":" REF(
                                                                                                                                                              "#/definitions/schemaArray") ",\"not\":" ROOT
                                                                                                                                                                                           "},"
                                                                                                                                                                                           "\"default\":true}";

static const struct meta {
    const char *uri;
    const char *text;
} metas[] = {
    {D "schema", schema_2020},
    {D "meta/core", core_2020},
    {D "meta/applicator", applicator_2020},
    {D "meta/unevaluated", unevaluated_2020},
    {D "meta/validation", validation_2020},
    {D "meta/meta-data", meta_data_2020},
    {D "meta/format-annotation", format_annotation_2020},
    {D "meta/format-assertion", format_assertion_2020},
    {D "meta/content", content_2020},
    {"http://json-schema.org/draft-07/schema", schema_7},
};

struct str schema_meta_text(struct str uri)
{
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++)
        if (str_is(uri, metas[i].uri))
            return str_of(metas[i].text);
    return STR_NONE;
}
