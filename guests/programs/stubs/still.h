/* Time that stands still, for programs that print how long they took: the same output in every run and engine. */
#ifndef STUB_STILL_H
#define STUB_STILL_H
#include <sys/time.h>
#include <time.h>
static inline int still_gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    now->tv_sec = 1000000000;
    now->tv_usec = 0;
    return 0;
}
#define gettimeofday still_gettimeofday
#define clock() ((clock_t)0)
#define time(now) ((time_t)1000000000)
#define getpid() 1
#endif
