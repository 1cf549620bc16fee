/* What bothyd says about itself in its metrics: version, process, disk. */
#pragma once

/* state: a descriptor of the state directory, for ever. */
void daemon_metrics(int state, const char *version);
