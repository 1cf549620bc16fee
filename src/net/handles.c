#include "net/handles.h"

#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void global_init(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

void handles_init(handles *h, size_t keep)
{
    pthread_once(&once, global_init);
    *h = (handles){.keep = keep};
    pthread_mutex_init(&h->lock, NULL);
}

void handles_done(handles *h)
{
    while (h->nidle)
        curl_easy_cleanup(h->idle[--h->nidle]);
    pthread_mutex_destroy(&h->lock);
}

CURL *handles_take(handles *h)
{
    pthread_mutex_lock(&h->lock);
    CURL *curl = h->nidle ? h->idle[--h->nidle] : NULL;
    pthread_mutex_unlock(&h->lock);
    if (curl)
        return curl;
    curl = curl_easy_init();
    if (!curl)
        abort();
    return curl;
}

void handles_give(handles *h, CURL *curl)
{
    curl_easy_reset(curl);
    pthread_mutex_lock(&h->lock);
    if (h->nidle < h->keep) {
        h->idle[h->nidle++] = curl;
        curl = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    if (curl)
        curl_easy_cleanup(curl);
}
