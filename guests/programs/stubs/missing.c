/* Functions that programs name and this C library lacks, because there is no process, user or thread: each fails as where it is not permitted. */
#include "missing.h"
#include "pthread.h"
#include "setjmp.h"
#include <errno.h>
#include <stdlib.h>

static int refused(void) { errno = ENOSYS; return -1; }

_Noreturn void longjmp(jmp_buf env, int value) {
    (void)env;
    fprintf(stderr, "longjmp with %d: not supported\n", value);
    exit(70);
}

FILE *popen(const char *command, const char *mode) { (void)command; (void)mode; refused(); return NULL; }
int pclose(FILE *stream) { (void)stream; return refused(); }
int system(const char *command) { return command ? refused() : 0; }
FILE *tmpfile(void) { refused(); return NULL; }
char *tmpnam(char *name) { (void)name; return NULL; }
char *realpath(const char *path, char *resolved) { (void)path; (void)resolved; refused(); return NULL; }
int mkstemp(char *name) { (void)name; return refused(); }
unsigned alarm(unsigned seconds) { (void)seconds; return 0; }
int chmod(const char *path, unsigned mode) { (void)path; (void)mode; return refused(); }
int fchmod(int file, unsigned mode) { (void)file; (void)mode; return refused(); }
int chown(const char *path, unsigned user, unsigned group) { (void)path; (void)user; (void)group; return refused(); }
int fchown(int file, unsigned user, unsigned group) { (void)file; (void)user; (void)group; return refused(); }
unsigned umask(unsigned mode) { (void)mode; return 0; }
unsigned getuid(void) { return 0; }
unsigned geteuid(void) { return 0; }

static const void *values[16];
static unsigned keys;
int pthread_key_create(pthread_key_t *key, void (*end)(void *)) {
    (void)end;
    if (keys == sizeof values / sizeof *values) return EAGAIN;
    *key = keys++;
    return 0;
}
int pthread_setspecific(pthread_key_t key, const void *value) { values[key] = value; return 0; }
void *pthread_getspecific(pthread_key_t key) { return (void *)values[key]; }
