/* Declarations of missing.c, for sources that take the address of such a function. */
#ifndef STUB_MISSING_H
#define STUB_MISSING_H
#include <fcntl.h>
#include <stdio.h>
int chmod(const char *path, unsigned mode);
int fchmod(int file, unsigned mode);
int chown(const char *path, unsigned user, unsigned group);
int fchown(int file, unsigned user, unsigned group);
unsigned umask(unsigned mode);
unsigned getuid(void);
unsigned geteuid(void);
FILE *popen(const char *command, const char *mode);
int pclose(FILE *stream);
int system(const char *command);
/* Locks of files, which fcntl refuses. */
#ifndef F_WRLCK
#define F_RDLCK 0
#define F_WRLCK 1
#define F_UNLCK 2
#define F_GETLK 5
#define F_SETLK 6
#endif
#endif
