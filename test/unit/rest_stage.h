/* The REST door over real sockets, with an engine whose replies the test gives: the stage, and how tests ask. */
#ifndef REST_STAGE_H
#define REST_STAGE_H

#include "support/fake_engine.h"
#include "support/http_client.h"
#include "support/test_parts.h"

#include "door/http.h"

#define OP_1 "op_01J00000000000000000000001"
#define OP_2 "op_01J00000000000000000000002"
#define OP_3 "op_01J00000000000000000000003"
#define NOW  INT64_C(1790000000000)

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct registry *registry;
    struct provider provider;
    struct tool tool, shared;
    struct http_door *door;
    struct operation op, other;
    struct http_answer answer;
    struct json *schemas; /* components of the document */
    struct arena arena;
};

#define CASE(test)       cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define TOKEN_CASE(test) cmocka_unit_test_setup_teardown(test, set_up_tokens, tear_down)
int set_up(void **state);
int set_up_tokens(void **state); /* the door asks for tokens */
int set_up_small(void **state);  /* at most two connections */
int set_up_hasty(void **state);  /* a second for a request */
int tear_down(void **state);

void make_operation(struct operation *op, const char *id, enum state state);
void door_closed(void *user); /* user: bool, becomes true */
void close_door(struct stage *stage);

/* ---- asking ---- */

void send_raw(struct stage *stage, int fd, const char *text);
/* One request on a connection of its own; headers are whole lines. Returns the status. */
int ask_rest(struct stage *stage, const char *method, const char *path, const char *headers, const char *body);
#define JSON_TYPE "Content-Type: application/json\r\n"
int call(struct stage *stage, const char *headers, const char *body);
char *large_call(size_t bytes); /* the body of a call; free() it */

/* ---- the last answer ---- */

const char *member(struct stage *stage, const char *pointer); /* as text, NULL: not there */
void expect(struct stage *stage, const char *pointer, const char *value);
void expect_problem(struct stage *stage, int status, const char *name);
void expect_detail(struct stage *stage, const char *part);
void load_schemas(struct stage *stage);
/* Valid by the named component schema of the document. */
void expect_shape(struct stage *stage, const char *name);

/* Tests by file. */
extern const struct test_part wire_tests;
extern const struct test_part look_tests;
extern const struct test_part token_tests;

#endif
