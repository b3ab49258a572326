/* Between the files that answer /v1 of the fault-injecting provider. */
#ifndef CLI_FAKE_API_H
#define CLI_FAKE_API_H

#include "cli/fake_server.h"

/* Chooses the request's plan: header Fake-Fault, member fake_fault of the body, script, fixed setting, seeded chance.
 * identity and nth: which thing, and the how manieth request for it. False when the plan cannot be read (answered 400).
 */
bool fake_api_choose(struct fake_request *request, bool lookup, uint64_t identity, unsigned nth);

/* Turns the provider's own answer into what the plan's fault makes of it. */
void fake_api_shape(struct fake_request *request);

/* Changes the members that are amounts: to amount, or by one more when it is negative. */
void fake_api_alter_amounts(struct fake_request *request, struct json *object, int64_t amount);

/* GET /v1/NAME and GET /v1/NAME/ID */
void fake_lookup_start(struct fake_request *request);

#endif
