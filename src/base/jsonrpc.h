/* JSON-RPC 2.0 messages as MCP uses them: one message per text, no batches. Shared by the MCP door and the MCP adapter.
 * Pure. */
#ifndef BASE_JSONRPC_H
#define BASE_JSONRPC_H

#include "base/json.h"

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESULT, RPC_ERROR };

/* Error codes of the JSON-RPC specification. */
#define RPC_PARSE_ERROR      (-32700)
#define RPC_INVALID_REQUEST  (-32600)
#define RPC_METHOD_NOT_FOUND (-32601)
#define RPC_INVALID_PARAMS   (-32602)
#define RPC_INTERNAL_ERROR   (-32603)

#define RPC_ID_BYTES_MAX     256 /* of an id's JSON text; longer ones are refused */
#define RPC_METHOD_BYTES_MAX 128

/* Everything lives in the arena that the message was read into. */
struct rpc_message {
    enum rpc_kind kind;
    struct str id;             /* its JSON text, "7" or "\"a\"": what is written back; absent: none. Two spellings of
                                  one id (7 and 7.0) give one text */
    const char *method;        /* requests and notifications */
    const struct json *params; /* an object, or NULL */
    const struct json *result; /* RPC_RESULT: any value */
    int64_t code;              /* RPC_ERROR */
    struct str message;        /* RPC_ERROR */
    const struct json *data;   /* RPC_ERROR, may be NULL */
    const struct json *tree;   /* the whole message */
};

/* What was wrong with a text that is no message, as it is to be answered. */
struct rpc_fault {
    int code;       /* RPC_PARSE_ERROR or RPC_INVALID_REQUEST */
    struct str id;  /* when it could be told, also of a broken or cut text; absent: answer with "id":null */
    struct err err; /* words, with the position */
};

/* Reads one message. ids are strings or whole numbers; params are objects (arrays are refused: MCP has none; null
 * counts as absent). A text that is JSON but over the limits is an invalid request. limits NULL means the default. */
bool rpc_read(struct arena *arena, struct str text, const struct json_limits *limits, struct rpc_message *out,
              struct rpc_fault *fault);

/* What a message is, for who passes it on without reading its values; the text may be broken or cut short. */
struct rpc_glance {
    struct str id;      /* as in rpc_message; absent when there is none, several or no valid one */
    struct str method;  /* decoded; absent for answers */
    bool result, error; /* an answer */
};
struct rpc_glance rpc_glance(struct arena *arena, struct str text);

/* Writers append one message without a line end of their own. id, params, result and data are JSON texts; absent params
 * and data are left out, an absent id is null. */
void rpc_write_request(struct buf *out, struct str id, const char *method, struct str params);
void rpc_write_notification(struct buf *out, const char *method, struct str params);
void rpc_write_result(struct buf *out, struct str id, struct str result);
void rpc_write_error(struct buf *out, struct str id, int64_t code, struct str message, struct str data);

#endif
