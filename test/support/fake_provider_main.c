/* The fault-injecting provider as a program of its own, for tests and benchmarks that need nothing else of onced. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cli_fake_provider(argc, argv);
}
