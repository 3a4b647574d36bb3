/* There are no users. */
#ifndef STUB_PWD_H
#define STUB_PWD_H
struct passwd { char *pw_name; char *pw_dir; };
static inline struct passwd *getpwuid(unsigned user) { (void)user; return 0; }
static inline struct passwd *getpwnam(const char *name) { (void)name; return 0; }
#endif
