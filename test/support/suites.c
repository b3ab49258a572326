#include "support/suites.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *suites_path(struct arena *arena, const char *name)
{
    const char *root = getenv("ONCED_SUITES");
    const char *path = arena_printf(arena, "%s/%s", root && *root ? root : SUITES_DEFAULT, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

struct str suites_read(struct arena *arena, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return STR_NONE;
    struct str text = STR_NONE;
    if (fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        rewind(file);
        char *bytes = arena_alloc(arena, (size_t)size + 1);
        if (fread(bytes, 1, (size_t)size, file) == (size_t)size) {
            bytes[size] = '\0';
            text = (struct str){bytes, (size_t)size};
        }
    }
    fclose(file);
    return text;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool ends_with(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

size_t suites_list(struct arena *arena, const char *folder, const char *ending, const char ***names)
{
    size_t count = 0, cap = 1024;
    const char **list = arena_alloc(arena, cap * sizeof *list);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) && count < cap;)
        if (ends_with(entry->d_name, ending))
            list[count++] = arena_copy_text(arena, entry->d_name);
    if (dir)
        closedir(dir);
    qsort(list, count, sizeof *list, compare_names);
    *names = list;
    return count;
}
