/* The demo server of the tests on a loopback port, for clients in other languages: prints the port,
 * serves until its standard input ends. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "../unit/net/demo.h"

static demo the_demo = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *serve(void *arg)
{
    server_run(arg);
    return NULL;
}

int main(void)
{
    server_options o = {.dispatch = demo_dispatch, .arg = &the_demo};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    server *s;
    char ignored[64];

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) || listen(fd, 512) ||
        getsockname(fd, (struct sockaddr *)&a, &n))
        return 1;
    err *e = server_new(&o, &s);
    if (e)
        return 1;
    server_listen(s, fd, false);
    pthread_t t = thread_start("server", serve, s);
    printf("%u\n", ntohs(a.sin_port));
    fflush(stdout);
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0)
        continue;
    server_stop(s);
    pthread_join(t, NULL);
    server_free(s);
    return 0;
}
