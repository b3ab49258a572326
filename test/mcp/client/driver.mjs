// What the conformance suite starts as "the client": onced with the suite's server behind it, and the official SDK's client in
// front of it. node driver.mjs URL, with ONCED, MCP_CONFORMANCE_SCENARIO and MCP_CONFORMANCE_PROTOCOL_VERSION in the
// environment. Exit status 0 when the steps of the scenario could be done.
import { spawn } from 'node:child_process';
import { mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const url = process.argv.at(-1);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const version = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? '2025-11-25';
const modern = version >= '2026';
const folder = mkdtempSync(join(tmpdir(), 'onced-driver-'));

async function startOnced() {
    const file = join(folder, 'onced.yaml');
    writeFileSync(
        file,
        JSON.stringify({
            onced: 1,
            server: { listen: '127.0.0.1:0', log: 'debug' },
            ledger: { path: 'onced.db' },
            providers: { suite: { mcp: { url, import: { classes: { '*': 'read' }, forwarded: true } } } }
        })
    );
    const log = process.env.ONCED_DRIVER_LOG ? openSync(process.env.ONCED_DRIVER_LOG, 'a') : 'inherit';
    const child = spawn(process.env.ONCED, ['serve', file], { stdio: ['ignore', 'pipe', log] });
    for await (const line of createInterface({ input: child.stdout })) return { child, ready: JSON.parse(line) };
    throw new Error('onced did not start');
}

// A user who accepts what the form proposes, and confirms what is to be confirmed.
function accepted(schema) {
    const content = {};
    for (const [name, field] of Object.entries(schema.properties ?? {})) content[name] = field.default ?? (field.type === 'boolean' ? true : 'text');
    return { action: 'accept', content };
}

async function connect(port) {
    const client = new Client(
        { name: 'onced-driver', version: '1.0.0' },
        { capabilities: { elicitation: {} }, versionNegotiation: { mode: modern ? 'auto' : 'legacy' } }
    );
    client.setRequestHandler('elicitation/create', request => accepted(request.params.requestedSchema));
    await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)));
    return client;
}

const context = () => JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const call = (client, name, args = {}) => client.callTool({ name, arguments: args });

const steps = {
    tools_call: async client => {
        const answer = await call(client, 'add_numbers', { a: 5, b: 3 });
        if (!JSON.stringify(answer.content).includes('8')) throw new Error(`5 + 3 gave ${JSON.stringify(answer)}`);
    },
    'elicitation-sep1034-client-defaults': client => call(client, 'test_client_elicitation_defaults'),
    'sse-retry': client => call(client, 'test_reconnection'),
    'request-metadata': async client => {
        const { tools } = await client.listTools();
        for (const tool of tools) await call(client, tool.name).catch(() => {});
    },
    'http-standard-headers': async client => {
        const { tools } = await client.listTools();
        for (const tool of tools) await call(client, tool.name);
        const { resources } = await client.listResources();
        for (const { uri } of resources) await client.readResource({ uri });
        const { prompts } = await client.listPrompts();
        for (const { name } of prompts) await client.getPrompt({ name });
    },
    'http-custom-headers': async client => {
        await client.listTools();
        for (const each of context().toolCalls) await call(client, each.name, each.arguments);
    },
    'http-invalid-tool-headers': async client => {
        const { tools } = await client.listTools();
        for (const tool of tools) await call(client, tool.name, { region: 'us-east1' });
    },
    'json-schema-2020-12-preservation': async client => {
        const { tools } = await client.listTools();
        const seen = tools.find(tool => tool.name === 'json_schema_2020_12_tool');
        await call(client, 'json_schema_echo', { schema: seen.inputSchema });
    },
    'sep-2322-client-request-state': async client => {
        const [first] = await Promise.all([call(client, 'test_mrtr_echo_state'), call(client, 'test_mrtr_unrelated')]);
        if (!first) throw new Error('no answer');
        await call(client, 'test_mrtr_no_state');
        await call(client, 'test_mrtr_no_result_type');
    }
};

const { child, ready } = await startOnced();
let status = 0;
try {
    const client = await connect(ready.port);
    await client.listTools();
    await steps[scenario]?.(client);
    await client.close();
} catch (error) {
    console.error(`${scenario}: ${error?.stack ?? error}`);
    status = 1;
}
child.kill('SIGTERM');
await new Promise(resolve => child.once('exit', resolve));
rmSync(folder, { recursive: true, force: true });
process.exit(status);
