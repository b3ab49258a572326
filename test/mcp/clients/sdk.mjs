// The TypeScript SDK's client, its stable release and its former one: node sdk.mjs v1|legacy|modern URL TOOL ARGUMENTS.
const [, , which, url, name, text] = process.argv;
const args = JSON.parse(text);

async function connect() {
    if (which === 'v1') {
        const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
        const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const client = new Client({ name: 'test', version: '1' });
        await client.connect(new StreamableHTTPClientTransport(new URL(url)));
        return client;
    }
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: which === 'modern' ? 'auto' : 'legacy' } });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
}

async function attempt() {
    try {
        const client = await connect();
        const result = await client.callTool({ name, arguments: args }, undefined, { timeout: 20000 });
        await client.close();
        return { text: result.content.map(part => part.text ?? '').join('\n') };
    } catch (error) {
        return { error: String(error) };
    }
}

const first = await attempt();
console.log(JSON.stringify({ first, second: await attempt() }));
process.exit(0);
