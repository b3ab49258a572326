// Signs webhooks with the providers' own libraries. Lines of JSON in, lines of JSON out:
//   {"scheme": "stripe" | "standard_webhooks", "secret", "body", "time": seconds, "id"}  ->  {"headers": {...}}
// and {"scheme", "secret", "body", "headers", "check": true}  ->  {"ok": bool}: whether the library itself accepts it.
import readline from "node:readline";
import Stripe from "stripe";
import { Webhook } from "standardwebhooks";

const stripe = new Stripe("sk_test_unused");

function sign({ scheme, secret, body, time, id }) {
  if (scheme === "stripe") {
    return { "stripe-signature": stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: time }) };
  }
  const date = new Date(time * 1000);
  return {
    "webhook-id": id,
    "webhook-timestamp": String(time),
    "webhook-signature": new Webhook(secret).sign(id, date, body),
  };
}

function check({ scheme, secret, body, headers }) {
  try {
    if (scheme === "stripe") stripe.webhooks.constructEvent(body, headers["stripe-signature"], secret);
    else new Webhook(secret).verify(body, headers);
    return true;
  } catch {
    return false;
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const wanted = JSON.parse(line);
  console.log(JSON.stringify(wanted.check ? { ok: check(wanted) } : { headers: sign(wanted) }));
}
