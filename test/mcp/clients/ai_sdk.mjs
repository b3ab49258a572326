// The Vercel AI SDK with its MCP client: node ai_sdk.mjs URL TOOL ARGUMENTS. The model is a script: it calls the tool, calls it
// again, and ends.
import { createMCPClient } from '@ai-sdk/mcp';
import { generateText, stepCountIs } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';

const [, , url, name, input] = process.argv;
const client = await createMCPClient({ transport: { type: 'http', url }, maxRetries: 2 });
let turn = 0;
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const model = new MockLanguageModelV4({
    doGenerate: async () =>
        ++turn <= 2
            ? {
                  finishReason: { unified: 'tool-calls', raw: undefined },
                  usage,
                  warnings: [],
                  content: [{ type: 'tool-call', toolCallId: `call_${turn}`, toolName: name, input }]
              }
            : { finishReason: { unified: 'stop', raw: undefined }, usage, warnings: [], content: [{ type: 'text', text: 'done' }] }
});
const { steps } = await generateText({ model, tools: await client.tools(), prompt: 'refund it', stopWhen: stepCountIs(4) });
const outcomes = steps.flatMap(step => step.content).filter(part => part.type === 'tool-result' || part.type === 'tool-error');
const told = part =>
    part.type === 'tool-error'
        ? { error: String(part.error) }
        : { text: (part.output.content ?? []).map(each => each.text ?? '').join('\n') };
const [first, second] = outcomes.map(told);
console.log(JSON.stringify({ first, second }));
await client.close();
process.exit(0);
