/* Metrics of bothyd itself: version, process, disk. */
#pragma once

/* state: descriptor of the state directory; must stay open. */
void daemon_metrics(int state, const char *version);
