/* What the C library of 2022 lacks: programs that need setjmp only to compile, or to report an error and end. A longjmp ends the program. */
#ifndef STUB_SETJMP_H
#define STUB_SETJMP_H
typedef int jmp_buf[1];
typedef jmp_buf sigjmp_buf;
#define setjmp(env) ((void)(env), 0)
#define _setjmp(env) setjmp(env)
#define sigsetjmp(env, save) setjmp(env)
_Noreturn void longjmp(jmp_buf env, int value);
#define _longjmp(env, value) longjmp(env, value)
#define siglongjmp(env, value) longjmp(env, value)
#endif
