/* synced.so: remembers how much of each append-only file is really on disk.
 *
 * Loaded into the store with LD_PRELOAD. After every successful fsync or fdatasync of a file whose name ends in ".aof"
 * it appends one line "length<TAB>path" to the file named by SYNCED_LOG. The length is taken BEFORE the call: what was
 * written while the sync ran may or may not be on disk. A test that kills the store and then cuts its file to the last
 * length it finds here has simulated a power loss. SYNCED_DELAY_MS makes every sync that much slower (a slow disk).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long delay_ms(void) {
    const char *text = getenv("SYNCED_DELAY_MS");
    return text ? atol(text) : 0;
}

static int synced(int fd, const char *name) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char link[64], path[4096];
    struct stat before;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int ours = 0;
    if (length > 4) {
        path[length] = 0;
        ours = strcmp(path + length - 4, ".aof") == 0 && fstat(fd, &before) == 0;
    }
    if (ours && delay_ms() > 0) {
        struct timespec wait = {delay_ms() / 1000, (delay_ms() % 1000) * 1000000L};
        nanosleep(&wait, NULL);
    }
    int result = real(fd);
    const char *log = getenv("SYNCED_LOG");
    if (result == 0 && ours && log) {
        char line[4200];
        int size = snprintf(line, sizeof line, "%lld\t%s\n", (long long)before.st_size, path);
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (out >= 0) {
            if (write(out, line, (size_t)size) != size) abort();
            close(out);
        }
    }
    return result;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }
