/* The program's main(), kept out of the library that the tests link. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
