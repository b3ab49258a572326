/* Servers and their tools as the registry file states them: what is compiled, and that every wrong member is told with
 * its place. */
#include "support/mcp_tool_case.h"
#include "support/test.h"

#include <stdlib.h>

#define STDIO "{'mcp':{'command':['server']}}"

static bool has_line(char *const *list, const char *line)
{
    for (; list && *list; list++) {
        if (strcmp(*list, line) == 0)
            return true;
    }
    return false;
}

static size_t count_of(char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

/* ---- providers ---- */

static void a_started_server_has_its_defaults(void **state)
{
    struct mcp_tool_case c;
    (void)state;
    setenv("PATH", "/bin", 1);
    setenv("HOME", "/home/me", 1);
    setenv("UNTOLD", "x", 1);
    mcp_tool_case_init(&c, STDIO, NULL, CLASS_EXTERNAL_WEAK);
    assert_non_null(c.provider);
    assert_int_equal(count_of(c.provider->command), 1);
    assert_string_equal(c.provider->command[0], "server");
    assert_int_equal(count_of(c.provider->env), 2); /* nothing else is inherited */
    assert_true(has_line(c.provider->env, "PATH=/bin"));
    assert_true(has_line(c.provider->env, "HOME=/home/me"));
    assert_null(c.provider->url);
    assert_null(c.provider->cwd);
    assert_null(c.provider->version);
    assert_false(c.provider->per_client);
    assert_true(c.provider->forward);
    assert_true(c.provider->key_meta);
    assert_null(c.provider->key_argument);
    assert_string_equal(c.provider->prefix, "");
    assert_int_equal(c.provider->start_timeout_ms, 15000);
    assert_int_equal(c.provider->errors, MCP_ERRORS_UNKNOWN);
    assert_int_equal(c.core_provider.kind, PROVIDER_MCP);
    assert_int_equal(c.core_provider.timeout_ms, 60000);
    assert_int_equal(c.core_provider.connections_max, 64);
    assert_false(c.core_provider.key_honoured);
    assert_int_equal(c.core_provider.key_retention_ms, 0);
    assert_int_equal(c.core_provider.breaker_failures, 10);
    mcp_tool_case_release(&c);
}

static void a_started_server_gets_what_is_stated(void **state)
{
    struct mcp_tool_case c;
    (void)state;
    setenv("SECRET_OF_TEST", "hush-hush", 1);
    mcp_tool_case_init(&c,
                       "{'mcp':{'command':['${env:SECRET_OF_TEST}/bin','-y'],'cwd':'/data',"
                       "'env':{'PATH':'/opt/bin','TOKEN':'t:${env:SECRET_OF_TEST}','EMPTY':''},"
                       "'protocol':'2025-06-18','sessions':'per_client','forward':false,'start_timeout':'2s',"
                       "'errors':'no_effect','import':{'prefix':'fs_','whatever':1}},"
                       "'timeout':'5s','connections':3,'queue':7,'answer_bytes_max':'2KB',"
                       "'key':{'argument':'request_id','meta':false,'honoured':true,'retention':'24h',"
                       "'format':'uuid','max_length':36},'breaker':{'failures':0}}",
                       NULL, CLASS_EXTERNAL_WEAK);
    assert_string_equal(mcp_tool_case_problems(&c), "");
    assert_string_equal(c.provider->command[0], "hush-hush/bin");
    assert_string_equal(c.provider->command[1], "-y");
    assert_true(has_line(c.provider->env, "PATH=/opt/bin"));
    assert_true(has_line(c.provider->env, "TOKEN=t:hush-hush"));
    assert_true(has_line(c.provider->env, "EMPTY="));
    assert_true(has_line(c.provider->secrets.values, "hush-hush"));
    assert_string_equal(c.provider->cwd, "/data");
    assert_string_equal(c.provider->version, "2025-06-18");
    assert_true(c.provider->per_client);
    assert_false(c.provider->forward);
    assert_int_equal(c.provider->errors, MCP_ERRORS_NO_EFFECT);
    assert_string_equal(c.provider->prefix, "fs_");
    assert_string_equal(c.provider->key_argument, "request_id");
    assert_false(c.provider->key_meta);
    assert_int_equal(c.provider->start_timeout_ms, 2000);
    assert_int_equal(c.provider->answer_bytes_max, 2048);
    assert_int_equal(c.core_provider.timeout_ms, 5000);
    assert_int_equal(c.core_provider.connections_max, 3);
    assert_int_equal(c.core_provider.queue_max, 7);
    assert_true(c.core_provider.key_honoured);
    assert_int_equal(c.core_provider.key_retention_ms, 24 * 3600 * 1000);
    assert_int_equal(c.core_provider.key_format, KEY_FORMAT_UUID);
    assert_int_equal(c.core_provider.key_bytes_max, 36);
    assert_int_equal(c.core_provider.breaker_failures, 0);
    mcp_tool_case_release(&c);
}

static void a_server_behind_a_url(void **state)
{
    struct mcp_tool_case c;
    (void)state;
    setenv("SECRET_OF_TEST", "hush-hush", 1);
    mcp_tool_case_init(&c,
                       "{'mcp':{'url':'http://127.0.0.1:3001/mcp?tenant=7','headers':{'Authorization':"
                       "'Bearer ${env:SECRET_OF_TEST}','X-Empty':''}}}",
                       NULL, CLASS_READ);
    assert_string_equal(mcp_tool_case_problems(&c), "");
    assert_string_equal(c.provider->url, "http://127.0.0.1:3001/mcp?tenant=7");
    assert_string_equal(c.provider->url_shown, "http://127.0.0.1:3001/mcp"); /* queries may hold secrets */
    assert_string_equal(c.provider->header_lines->data, "Authorization: Bearer hush-hush");
    assert_string_equal(c.provider->header_lines->next->data, "X-Empty;");
    assert_true(c.provider->per_client); /* the default behind a URL */
    assert_true(c.provider->tls_verify);
    assert_null(memmem(c.provider->identity.p, c.provider->identity.n, "hush-hush", 9));
    mcp_tool_case_release(&c);
    mcp_tool_case_init(&c, "{'mcp':{'url':'https://mcp.example.com/${env:SECRET_OF_TEST}'}}", NULL, CLASS_READ);
    assert_string_equal(c.provider->url_shown, "https://mcp.example.com/***");
    mcp_tool_case_release(&c);
}

static void provider_is_told(const char *section, const char *problem)
{
    struct mcp_tool_case c;
    mcp_tool_case_init(&c, section, NULL, CLASS_READ);
    assert_string_equal(mcp_tool_case_problems(&c), problem);
    mcp_tool_case_release(&c);
}

static void wrong_members_of_a_server_are_told(void **state)
{
    (void)state;
    provider_is_told("{}", "/providers/p/mcp: is missing, expected command or url of the server\n");
    provider_is_told("{'mcp':{}}", "/providers/p/mcp: expected command or url: how is the server reached?\n");
    provider_is_told("{'mcp':{'command':['a'],'url':'http://localhost/'}}",
                     "/providers/p/mcp/url: a server has a command or a url, not both\n");
    provider_is_told("{'mcp':{'command':'npx server'}}",
                     "/providers/p/mcp/command: expected a list of 1 to 256 words: the program and its arguments\n");
    provider_is_told("{'mcp':{'command':[]}}",
                     "/providers/p/mcp/command: expected a list of 1 to 256 words: the program and its arguments\n");
    provider_is_told("{'mcp':{'command':['a',7]}}", "/providers/p/mcp/command/1: is number, expected a text\n");
    provider_is_told("{'mcp':{'command':['']}}", "/providers/p/mcp/command/0: is empty, expected the program's name\n");
    provider_is_told("{'mcp':{'command':['a'],'env':{'A=B':'x'}}}",
                     "/providers/p/mcp/env/A=B: is no name of an environment variable\n");
    provider_is_told("{'mcp':{'command':['a'],'env':{'A':'${env:NOT_SET_ANYWHERE}'}}}",
                     "/providers/p/mcp/env/A: environment variable NOT_SET_ANYWHERE is not set\n");
    provider_is_told("{'mcp':{'command':['a'],'headers':{'A':'b'}}}",
                     "/providers/p/mcp/headers: are for servers with a url\n");
    provider_is_told("{'mcp':{'url':'http://localhost/','env':{'A':'b'}}}",
                     "/providers/p/mcp/env: is for servers that onced starts (command)\n");
    provider_is_told("{'mcp':{'url':'localhost/mcp'}}",
                     "/providers/p/mcp/url: is no URL, expected for example http://127.0.0.1:3001/mcp\n");
    provider_is_told("{'mcp':{'url':'http://me:pw@localhost/mcp'}}",
                     "/providers/p/mcp/url: has a user or fragment; give credentials as a header\n");
    provider_is_told("{'mcp':{'url':'http://localhost/','headers':{'mcp-session-id':'7'}}}",
                     "/providers/p/mcp/headers/mcp-session-id: belongs to the protocol and is set by onced\n");
    provider_is_told("{'mcp':{'url':'http://localhost/','headers':{'Mcp-Param-X':'7'}}}",
                     "/providers/p/mcp/headers/Mcp-Param-X: belongs to the protocol and is set by onced\n");
    provider_is_told("{'mcp':{'url':'http://localhost/','headers':{'X':'{order}'}}}",
                     "/providers/p/mcp/headers/X: has a {place}: a server's headers are the same for all calls\n");
    provider_is_told("{'mcp':{'command':['a'],'protocol':'2024-01-01'}}",
                     "/providers/p/mcp/protocol: is \"2024-01-01\", expected one of: auto, 2025-11-25, 2025-06-18, "
                     "2025-03-26, 2026-07-28\n");
    provider_is_told("{'mcp':{'command':['a'],'sessions':'many','comand':1}}",
                     "/providers/p/mcp/sessions: is \"many\", expected one of: shared, per_client\n"
                     "/providers/p/mcp/comand: unknown member\n");
    provider_is_told("{'mcp':{'command':['a']},'key':{'honoured':true,'meta':false}}",
                     "/providers/p/key/honoured: is true, but the server is not given the key (argument, meta)\n");
    provider_is_told("{'mcp':{'command':['a']},'base_url':'http://localhost'}",
                     "/providers/p/base_url: unknown member\n");
}

/* A key that is the same for all calls would merge them (case S17). */
static void a_fixed_key_header_is_refused(void **state)
{
    struct mcp_tool_case c;
    (void)state;
    mcp_tool_case_init(&c, "{'mcp':{'url':'http://localhost/','headers':{'Idempotency-Key':'7'}}}", NULL, CLASS_READ);
    assert_null(c.provider);
    assert_non_null(strstr(mcp_tool_case_problems(&c), "would be the same for all operations"));
    mcp_tool_case_release(&c);
}

static const char *identity(struct arena *arena, const char *section)
{
    struct mcp_tool_case c;
    mcp_tool_case_init(&c, section, NULL, CLASS_READ);
    assert_non_null(c.provider);
    const char *text = arena_copy_str(arena, mcp_provider_identity(c.provider));
    mcp_tool_case_release(&c);
    return text;
}

static void another_connection_is_another_server(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena);
    setenv("SECRET_OF_TEST", "one", 1);
    const char *plain = identity(&arena, "{'mcp':{'command':['a'],'env':{'T':'${env:SECRET_OF_TEST}'}}}");
    /* what does not make the connection, and the order of members, do not matter */
    assert_string_equal(plain, identity(&arena, "{'timeout':'1s','mcp':{'env':{'T':'${env:SECRET_OF_TEST}'},"
                                                "'command':['a'],'import':{'prefix':'x'},'errors':'no_effect'}}"));
    assert_string_not_equal(plain, identity(&arena, "{'mcp':{'command':['b'],'env':{'T':'${env:SECRET_OF_TEST}'}}}"));
    setenv("SECRET_OF_TEST", "two", 1);
    assert_string_not_equal(plain, identity(&arena, "{'mcp':{'command':['a'],'env':{'T':'${env:SECRET_OF_TEST}'}}}"));
    assert_string_not_equal(identity(&arena, "{'mcp':{'url':'https://localhost/'}}"),
                            identity(&arena, "{'mcp':{'url':'https://localhost/'},'tls':{'verify':false}}"));
    arena_release(&arena);
}

/* ---- tools ---- */

static void a_tool_has_its_defaults(void **state)
{
    struct mcp_tool_case c;
    (void)state;
    mcp_tool_case_init(&c, "{'mcp':{'command':['a'],'import':{'prefix':'t'}},'timeout':'9s'}", "{}",
                       CLASS_EXTERNAL_WEAK);
    assert_string_equal(mcp_tool_remote_name(c.tool), "ool"); /* the tool is called tool */
    mcp_tool_case_release(&c);
    mcp_tool_case_init(&c, "{'mcp':{'command':['a'],'errors':'no_effect'},'timeout':'9s'}", "{}", CLASS_EXTERNAL_WEAK);
    assert_string_equal(mcp_tool_remote_name(c.tool), "tool");
    assert_null(mcp_tool_key_argument(c.tool));
    assert_false(mcp_tool_has_lookup(c.tool));
    assert_true(c.tool->write);
    assert_int_equal(c.tool->timeout_ms, 9000);
    assert_int_equal(c.tool->errors, MCP_ERRORS_NO_EFFECT);
    mcp_tool_case_release(&c);
}

static const char *key_argument(struct mcp_tool_case *c, const char *provider, const char *tool)
{
    mcp_tool_case_init(c, provider, tool, CLASS_EXTERNAL_WEAK);
    assert_string_equal(mcp_tool_case_problems(c), "");
    return mcp_tool_key_argument(c->tool);
}

static void the_key_argument_is_there_or_stated(void **state)
{
    static const char usual[] = "{'mcp':{'command':['a']},'key':{'argument':'request_id'}}";
    struct mcp_tool_case c;
    (void)state;
    assert_null(key_argument(&c, usual, "{'input_schema':{'properties':{'path':{}}}}"));
    mcp_tool_case_release(&c);
    assert_string_equal(key_argument(&c, usual, "{'input_schema':{'properties':{'request_id':{}}}}"), "request_id");
    mcp_tool_case_release(&c);
    assert_string_equal(key_argument(&c, usual, "{'mcp':{'key_argument':'key'}}"), "key");
    mcp_tool_case_release(&c);
    assert_null(key_argument(&c, STDIO, "{'input_schema':{'properties':{'request_id':{}}}}"));
    mcp_tool_case_release(&c);
}

static void a_tool_with_everything(void **state)
{
    struct mcp_tool_case c;
    (void)state;
    mcp_tool_case_init(&c, STDIO,
                       "{'timeout':'3s','verify':{'/structuredContent/amount':'{amount}'},"
                       "'mcp':{'tool':'write_file','errors':{'no_effect':'.x','not_processed':'.y','noop':'.z'},"
                       "'error_when':'.e','success_when':'.s','external_id':'/structuredContent/id'},"
                       "'lookup':{'tool':'read','arguments':{'path':'{path}','op':'{$operation}'},'found':'.f',"
                       "'absent':'.a','pending':'.p','failed':'.q','external_id':'.structuredContent.id',"
                       "'verify':{'/a':1},'timeout':'1s'}}",
                       CLASS_EXTERNAL_WEAK);
    assert_string_equal(mcp_tool_case_problems(&c), "");
    assert_string_equal(mcp_tool_remote_name(c.tool), "write_file");
    assert_true(mcp_tool_has_lookup(c.tool));
    assert_non_null(c.tool->no_effect_when);
    assert_non_null(c.tool->not_processed_when);
    assert_non_null(c.tool->noop_when);
    assert_string_equal(c.tool->external_id.pointer, "/structuredContent/id");
    assert_string_equal(c.tool->lookup->tool, "read");
    assert_non_null(c.tool->lookup->external_id.jq);
    assert_int_equal(c.tool->lookup->timeout_ms, 1000);
    assert_int_equal(c.tool->timeout_ms, 3000);
    mcp_tool_case_release(&c);
}

static void tool_is_told(const char *section, const char *problem)
{
    struct mcp_tool_case c;
    mcp_tool_case_init(&c, STDIO, section, CLASS_EXTERNAL_WEAK);
    assert_string_equal(mcp_tool_case_problems(&c), problem);
    assert_null(c.tool);
    mcp_tool_case_release(&c);
}

static void wrong_members_of_a_tool_are_told(void **state)
{
    (void)state;
    tool_is_told("{'mcp':{'tool':'','key_argument':''}}",
                 "/tools/tool/mcp/tool: is empty, expected the server's name of the tool\n"
                 "/tools/tool/mcp/key_argument: is empty, expected the name of an argument\n");
    tool_is_told("{'mcp':{'errors':'none'}}",
                 "/tools/tool/mcp/errors: is \"none\", expected one of: unknown, no_effect\n");
    tool_is_told("{'mcp':{'errors':{'gone':'.x'}}}", "/tools/tool/mcp/errors/gone: unknown member\n");
    tool_is_told("{'mcp':{'tol':'x'}}", "/tools/tool/mcp/tol: unknown member\n");
    tool_is_told("{'lookup':{'found':'.x'}}",
                 "/tools/tool/lookup/tool: is missing, expected another tool of the server\n");
    tool_is_told("{'lookup':{'tool':'tool','found':'.x'}}",
                 "/tools/tool/lookup/tool: is \"tool\", expected another tool of the server: a look-up must not do it "
                 "again\n");
    tool_is_told("{'lookup':{'tool':'read'}}",
                 "/tools/tool/lookup: expected found or absent: what does the answer prove?\n");
    tool_is_told("{'lookup':{'tool':'read','found':'.x','arguments':7}}",
                 "/tools/tool/lookup/arguments: is number, expected names and values, or a jq program as text\n");
    tool_is_told("{'lookup':{'tool':'read','found':'.x','argumens':{}}}",
                 "/tools/tool/lookup/argumens: unknown member\n");
    tool_is_told("{'mcp':{'external_id':'/~5'}}",
                 "/tools/tool/mcp/external_id: \"/~5\" is no JSON Pointer, expected \"\" or for example /data/id\n");
    tool_is_told("{'timeout':7}", "/tools/tool/timeout: is number, expected a duration such as 10s\n");
}

static void broken_programs_are_told(void **state)
{
    struct mcp_tool_case c;
    (void)state;
    mcp_tool_case_init(&c, STDIO, "{'lookup':{'tool':'read','found':'.x |','arguments':{'a':'{'}}}",
                       CLASS_EXTERNAL_WEAK);
    const char *told = mcp_tool_case_problems(&c);
    assert_non_null(strstr(told, "/tools/tool/lookup/found: "));
    assert_non_null(strstr(told, "/tools/tool/lookup/arguments/a: "));
    assert_null(c.tool);
    mcp_tool_case_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_started_server_has_its_defaults),
        cmocka_unit_test(a_started_server_gets_what_is_stated),
        cmocka_unit_test(a_server_behind_a_url),
        cmocka_unit_test(wrong_members_of_a_server_are_told),
        cmocka_unit_test(a_fixed_key_header_is_refused),
        cmocka_unit_test(another_connection_is_another_server),
        cmocka_unit_test(a_tool_has_its_defaults),
        cmocka_unit_test(the_key_argument_is_there_or_stated),
        cmocka_unit_test(a_tool_with_everything),
        cmocka_unit_test(wrong_members_of_a_tool_are_told),
        cmocka_unit_test(broken_programs_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
