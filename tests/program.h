/* program.h - runs the main of an example, PROGRAM(argc, argv, out, log), in the test program, and keeps what it said.
   Include after test.h, the example and the definition of PROGRAM. */
static struct {
    int status;
    char out[1 << 16], log[1 << 12];
} said;

static void slurp(FILE *f, char *text, size_t size) {
    rewind(f);
    text[fread(text, 1, size - 1, f)] = 0;
    fclose(f);
}

static int run(const char *const *arguments) { /* the list ends with NULL */
    char *argv[16] = {(char *)"program"};
    int argc = 1;
    FILE *out = tmpfile(), *log = tmpfile();
    if (!CHECK(out && log)) return said.status = -1;
    while (argc < 15 && *arguments) argv[argc++] = (char *)*arguments++;
    said.status = PROGRAM(argc, argv, out, log);
    slurp(out, said.out, sizeof said.out);
    slurp(log, said.log, sizeof said.log);
    return said.status;
}
#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})
