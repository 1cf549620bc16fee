/* Implements lib.h, including memset() and memcpy() where no libc provides them. */
#include "bare/lib.h"

#ifndef HOSTED
void *memset(void *d, int c, size_t n)
{
    char *p = d;
    while (n--)
        *p++ = (char)c;
    return d;
}

void *memcpy(void *d, const void *s, size_t n)
{
    char *p = d;
    const char *q = s;
#    ifdef __x86_64__
    __asm__ volatile("rep movsb" : "+D"(p), "+S"(q), "+c"(n) : : "memory");
#    else
    while (n--)
        *p++ = *q++;
#    endif
    return d;
}
#endif

size_t text_len(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

bool text_equal(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

bool text_starts(const char *s, const char *prefix)
{
    while (*prefix)
        if (*s++ != *prefix++)
            return false;
    return true;
}

bool text_number(const char *s, const char *until, u64 *ret)
{
    u64 v = 0;

    if (s == until)
        return false;
    for (; s != until; s++) {
        u64 digit = (u64)(unsigned char)*s - '0';
        if (digit > 9 || v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *ret = v;
    return true;
}

char *text_from_number(char *end, u64 v)
{
    do
        *--end = (char)('0' + v % 10);
    while (v /= 10);
    return end;
}

static void *map_with(size_t n, int more)
{
    long r = SYS(mmap, 0, n, K_PROT_READ | K_PROT_WRITE, K_MAP_PRIVATE | K_MAP_ANON | more, -1, 0);
    return sys_failed(r) ? NULL : (void *)r;
}

void *map_anon(size_t n)
{
    return map_with(n, 0);
}

void *map_anon_lazy(size_t n)
{
    return map_with(n, K_MAP_NORESERVE);
}

void fd_close(int *fd)
{
    if (*fd >= 0)
        SYS(close, *fd);
    *fd = -1;
}

char *text_file(const char *path)
{
    struct statx st = {0};
    size_t n = 0;
    long fd = SYS(openat, K_AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);

    if (fd < 0)
        return NULL;
    char *p = map_anon(TEXT_FILE_MAX + 2);
    long r = SYS(statx, fd, "", K_AT_EMPTY_PATH, STATX_TYPE, &st);
    if (!p || r < 0 || (st.stx_mode & K_S_IFMT) != K_S_IFREG)
        r = -EINVAL;
    while (r >= 0 && n <= TEXT_FILE_MAX && (r = SYS(read, fd, p + n, TEXT_FILE_MAX + 1 - n)) > 0)
        n += (size_t)r;
    SYS(close, fd);
    return r < 0 || n > TEXT_FILE_MAX ? NULL : p;
}

bool text_fields(char **at, const char *field[TEXT_FIELDS])
{
    static const char nothing[] = "";
    char *p = *at;
    u32 n = 0;

    if (!p || !*p)
        return false;
    for (u32 i = 0; i < TEXT_FIELDS; i++)
        field[i] = nothing;
    field[n++] = p;
    for (; *p && *p != '\n'; p++) {
        if (*p != ':')
            continue;
        *p = 0;
        if (n < TEXT_FIELDS)
            field[n++] = p + 1;
    }
    if (*p)
        *p++ = 0;
    *at = p;
    return true;
}
