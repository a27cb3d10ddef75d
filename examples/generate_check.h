/* generate_check.h - what generate.c does without a model: it compares texts and numbers, and its speed with that of
   the plain loop in generate_loop.h. */
#ifndef GENERATE_CHECK_H
#define GENERATE_CHECK_H

/* ---- checks */

enum { CHECKED = 8, CHECKED_TOKENS = 24 };
static const char *const some_prompts[CHECKED] = {"/* The weights of a row",
                                                  "static int",
                                                  "a",
                                                  "Every array that is read",
                                                  "    for (",
                                                  "#define ATTN",
                                                  "if",
                                                  "The "};

static int has_isa(int32_t isa) {
    float x = 0;
    return attn_elementary(ATTN_EXP, &x, &x, 1, (attn_isa)isa) == ATTN_OK;
}

/* The same texts in every way that may only change the speed; what the first way writes is the measure. */
static int check_texts(const model *m, int32_t type, float temperature) {
    static const struct {
        int32_t threads, batch, page;
    } ways[] = {{3, 5, 7}, {1, 8, 0}, {2, 8, 0}, {3, 8, 0}, {1, 1, 0}, {1, 3, 0}, {1, 8, 1}, {1, 8, 16}, {1, 8, 300}};
    int32_t texts[CHECKED * CHECKED_TOKENS], wanted[CHECKED * CHECKED_TOKENS];
    double seconds[2] = {0, 0};
    int count = 0, ok = 1;
    for (int32_t isa = ATTN_ISA_AUTO; isa < ATTN_ISA_COUNT; isa++)
        for (size_t i = 0; has_isa(isa) && i < (isa == ATTN_ISA_AUTO ? sizeof ways / sizeof ways[0] : 1);
             i++, count++) {
            const manner how = {isa, ways[i].threads, ways[i].batch, ways[i].page, type, type, temperature, 1};
            generate(m, &how, some_prompts, CHECKED, CHECKED_TOKENS, texts, seconds);
            if (count == 0) memcpy(wanted, texts, sizeof wanted);
            if (memcmp(texts, wanted, sizeof wanted) == 0) continue;
            printf("WRONG: another text with %s, threads %d, batch %d, page %d\n", attn_isa_string((attn_isa)isa),
                   ways[i].threads, ways[i].batch, ways[i].page);
            ok = 0;
        }
    printf("%s, temperature %.1f: the same %d texts in each of %d ways\n", name_of(type), (double)temperature, CHECKED,
           count);
    return ok;
}

/* The plain loop beside a decoder, which has its memory and its tables. */
static loop loop_beside(decoder *d) {
    const int64_t width = d->m->sizes.width, hidden = d->m->sizes.hidden, length = d->m->sizes.length;
    const int64_t cache = d->m->sizes.layers * length * (width / d->m->sizes.heads * d->m->sizes.kv_heads);
    const loop s = {floats(d, width),
                    floats(d, width),
                    floats(d, width),
                    floats(d, width),
                    floats(d, hidden),
                    floats(d, hidden),
                    floats(d, length),
                    floats(d, cache),
                    floats(d, cache),
                    floats(d, d->m->sizes.vocabulary),
                    d->cosines,
                    d->sines,
                    now,
                    0};
    return s;
}

/* Token by token both ways: the logits of the loop are those of attn.h, but for rounding. */
static int check_logits(const model *m, int32_t type, double bound) {
    const manner how = {ATTN_ISA_AUTO, 1, 1, 0, type, type, 0, 0};
    const int32_t one = 1;
    double largest = 0, worst = 0;
    decoder d;
    begin(&d, m, &how, 1, &one);
    loop s = loop_beside(&d);
    for (int32_t i = 0; i < 64; i++) {
        const int32_t token = (i * i + 37) % m->sizes.vocabulary;
        step(&d, &token);
        loop_token(m, &s, token, i);
        for (int32_t j = 0; j < m->sizes.vocabulary; j++) {
            largest = fmax(largest, fabs((double)s.logits[j]));
            worst = fmax(worst, fabs((double)s.logits[j] - (double)d.logits[j]));
        }
    }
    end(&d);
    printf("%s: logits within %.1e of those of a plain loop\n", name_of(type), worst / largest);
    if (worst <= bound * largest) return 1;
    printf("WRONG: that is more than %.1e\n", bound);
    return 0;
}

static model a_model(int32_t width, int32_t hidden, int32_t layers, int32_t heads, int32_t kv_heads, int32_t length) {
    model m;
    m.sizes.width = width;
    m.sizes.hidden = hidden;
    m.sizes.layers = layers;
    m.sizes.heads = heads;
    m.sizes.kv_heads = kv_heads;
    m.sizes.vocabulary = 256;
    m.sizes.length = length;
    if (!make_model(&m)) exit(!fail("no memory"));
    return m;
}

static int check(void) {
    static const int32_t types[] = {ATTN_F32, ATTN_BF16, ATTN_I8};
    static const double bounds[] = {1e-5, 0.05, 0.05};
    model m = a_model(64, 176, 2, 4, 2, 320);
    int ok = 1;
    printf("a model of random numbers: %d layers, %d heads, %d of keys, width %d\n", m.sizes.layers, m.sizes.heads,
           m.sizes.kv_heads, m.sizes.width);
    for (int i = 0; i < 3; i++) {
        ok = check_logits(&m, types[i], bounds[i]) && ok;
        ok = check_texts(&m, types[i], 0) && ok;
        ok = check_texts(&m, types[i], 0.8f) && ok;
    }
    free_model(&m);
    return ok;
}

/* ---- speed, one thread */

enum { HELD = 1024, MEASURED = 16, ROUNDS = 15, DECODERS = 5 };
static const struct {
    int32_t batch, type;
    double speed, attention; /* wanted: so many times the loop's; 0: nothing is */
} measured[DECODERS] = {
    {1, ATTN_F32, 1, 2}, {8, ATTN_F32, 2.5, 2}, {1, ATTN_BF16, 1, 2}, {8, ATTN_BF16, 2.5, 2}, {1, ATTN_I8, 1, 2}};

typedef struct {
    double token, attention; /* seconds, the least of all rounds */
} pace;

static void keep_least(pace *p, double token, double attention) {
    if (p->token == 0 || token < p->token) p->token = token;
    if (p->attention == 0 || attention < p->attention) p->attention = attention;
}

static void pace_loop(pace *p, const model *m, loop *s, int32_t held) {
    const double start = now();
    s->attention = 0;
    for (int32_t i = 0; i < MEASURED; i++) loop_token(m, s, i, held + i);
    keep_least(p, (now() - start) / MEASURED, s->attention / MEASURED);
}

static void pace_decoder(pace *p, decoder *d, int32_t held) { /* for a token of one of its prompts */
    const double start = now(), tokens = MEASURED * d->batch;
    int32_t fresh[CHECKED];
    d->attention = 0;
    for (int32_t b = 0; b < d->batch; b++) {
        d->lengths[b] = held;
        d->counts[b] = 1;
    }
    for (int32_t i = 0; i < MEASURED; i++) {
        for (int32_t b = 0; b < d->batch; b++) fresh[b] = i;
        step(d, fresh);
    }
    keep_least(p, (now() - start) / tokens, d->attention / tokens);
}

static void put_ratio(double ratio, double wanted) {
    printf(" %5.2f", ratio);
    if (wanted > 0) printf(" (%s %.1f)", ratio >= wanted ? "at least" : "MISSED: ", wanted);
    else printf("               ");
}

static void measure_at(const model *m, decoder *d, loop *s, int32_t held) {
    pace plain = {0, 0}, paces[DECODERS] = {{0, 0}};
    for (int r = 0; r < ROUNDS; r++) {
        pace_loop(&plain, m, s, held);
        for (int i = 0; i < DECODERS; i++) pace_decoder(&paces[i], &d[i], held);
    }
    printf("\n%4d tokens in the cache   tokens/s, times the loop's     attention: us per token, times as fast\n"
           "    the loop                %6.0f                                 %6.0f\n",
           held, 1 / plain.token, 1e6 * plain.attention);
    for (int i = 0; i < DECODERS; i++) {
        printf("    %s,%*d prompt%-9s %6.0f", name_of(measured[i].type), 6 - (int)strlen(name_of(measured[i].type)),
               measured[i].batch, measured[i].batch == 1 ? "" : "s", 1 / paces[i].token);
        put_ratio(plain.token / paces[i].token, measured[i].speed);
        printf("            %6.0f", 1e6 * paces[i].attention);
        put_ratio(plain.attention / paces[i].attention, held == HELD ? measured[i].attention : 0);
        printf("\n");
    }
}

static void measure(void) {
    static int32_t tokens[CHECKED * HELD], counts[CHECKED];
    model m = a_model(512, 1376, 3, 8, 2, HELD + MEASURED);
    decoder d[DECODERS];
    printf(
        "a model of random numbers, larger than the cache of a core: %.0f MB, %d layers, %d heads, %d of keys, width "
        "%d.\nOne thread. f32, bf16, int8: what weights, keys and values are kept as; the loop's are f32\n",
        4e-6 * (double)(m.cosines - m.embedding), m.sizes.layers, m.sizes.heads, m.sizes.kv_heads, m.sizes.width);
    for (int i = 0; i < CHECKED * HELD; i++) tokens[i] = (int32_t)(mix((uint64_t)(i % HELD)) % 256);
    for (int i = 0; i < CHECKED; i++) counts[i] = HELD;
    for (int i = 0; i < DECODERS; i++) {
        const manner how = {ATTN_ISA_AUTO, 1, measured[i].batch, 0, measured[i].type, measured[i].type, 0, 0};
        begin(&d[i], &m, &how, measured[i].batch, counts);
    }
    loop s = loop_beside(&d[0]);
    double start = now();
    for (int i = 0; i < HELD; i++) loop_token(&m, &s, tokens[i], i);
    const double plain = now() - start;
    for (int i = 0; i < DECODERS; i++) {
        start = now();
        step(&d[i], tokens);
        if (i == 0)
            printf("reads a prompt of %d tokens %.1f times as fast as the loop\n", HELD, plain / (now() - start));
    }
    measure_at(&m, d, &s, 16);
    measure_at(&m, d, &s, HELD);
    for (int i = 0; i < DECODERS; i++) end(&d[i]);
    free_model(&m);
}
#endif
