/* The C library of 2022 has no threads: keys of the one thread that there is, and locks that are always free. */
#ifndef STUB_PTHREAD_H
#define STUB_PTHREAD_H
typedef int pthread_once_t;
typedef unsigned pthread_key_t;
typedef int pthread_mutex_t;
#define PTHREAD_ONCE_INIT 0
#define PTHREAD_MUTEX_INITIALIZER 0
static inline int pthread_once(pthread_once_t *once, void (*start)(void)) {
    if (!*once) { *once = 1; start(); }
    return 0;
}
int pthread_key_create(pthread_key_t *key, void (*end)(void *));
int pthread_setspecific(pthread_key_t key, const void *value);
void *pthread_getspecific(pthread_key_t key);
static inline int pthread_mutex_lock(pthread_mutex_t *lock) { (void)lock; return 0; }
static inline int pthread_mutex_unlock(pthread_mutex_t *lock) { (void)lock; return 0; }
#endif
