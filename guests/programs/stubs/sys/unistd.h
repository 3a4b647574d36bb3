/* Another name of the header. */
#include <unistd.h>
