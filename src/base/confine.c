#include "base/confine.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* Newer than Debian 12's headers. */
#define SET_MDWE         65
#define REFUSE_EXEC_GAIN 1UL
#define NO_INHERIT       2UL

err *confine_limit(int pid, int which, uint64_t value)
{
    struct rlimit r = {value, value};

    if (prlimit(pid, (__rlimit_resource_t)which, &r, NULL))
        return err_sys(ERR_WALL_FAILED, errno, "cannot set a resource limit");
    return NULL;
}

err *confine_no_core(void)
{
    return confine_limit(0, RLIMIT_CORE, 0);
}

bool confine_no_new_code(bool children)
{
    return !CONFINE_SANITIZED &&
           !prctl(SET_MDWE, REFUSE_EXEC_GAIN | (children ? 0UL : NO_INHERIT), 0, 0, 0);
}
