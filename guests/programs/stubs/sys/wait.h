/* There are no processes to wait for. */
#ifndef STUB_SYS_WAIT_H
#define STUB_SYS_WAIT_H
#define WIFEXITED(status) 0
#define WEXITSTATUS(status) 0
#define WIFSIGNALED(status) 0
#define WTERMSIG(status) 0
#define WCOREDUMP(status) 0
#endif
