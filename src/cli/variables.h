/* Commands that send nothing (chaos, eval) need none of the secrets that a registry file refers to. */
#ifndef CLI_VARIABLES_H
#define CLI_VARIABLES_H

/* Sets the environment variables that ${env:NAME} in this file asks for and that are not set to a text that will do for
 * tokens and for URLs. A file that cannot be read is left to config_load. */
void variables_assume(const char *path);

#endif
