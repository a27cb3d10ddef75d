/* cc -O2 agents.c -lm */
/* A herd in a large world. In every frame each animal attends to what is around it, twice. By distance
   (Gaussian kernel): the velocity of the herd near it, so that the herd turns together. By learned keys
   (bilinear): the place that interests it, food when it is hungry, company when it is not. A mask keeps both
   to what it can see. All memory is the game's own, the frame loop allocates nothing.
   It is C++ too: c++ -O2 -x c++ agents.c */
#include <stdlib.h>

static int allocations; /* all that the library ever asks for is counted */
static void *counted_malloc(size_t bytes) {
    allocations++;
    return malloc(bytes);
}

#define ATTN_IMPLEMENTATION
#define ATTN_MALLOC(n) counted_malloc(n)
#define ATTN_FREE(p) free(p)
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ANIMALS 96
#define FOOD 8
#define THINGS (ANIMALS + FOOD)
#define FRAMES 120

static const float sigma = 3.0f;  /* how far the herd's influence reaches, in metres */
static const float sight = 20.0f; /* nothing beyond is attended to */
static const float origin_x = 7000, origin_y = 4000;

/* Animals first, then food. Arrays of components, as the views read them. */
typedef struct world {
    float position[THINGS][2], velocity[THINGS][2]; /* world coordinates in metres; metres per second */
    float need[ANIMALS][2];                         /* what the animal wants: food, company */
    float gives[THINGS][2];                         /* what a thing gives: food, company */
    uint8_t sees_herd[ANIMALS][ANIMALS], sees[ANIMALS][THINGS];
    float herd[ANIMALS][2], herd_mass[ANIMALS]; /* results: mean velocity around, log of the kernel's sum */
    float goal[ANIMALS][2], goal_mass[ANIMALS]; /* results: mean place of interest; -inf: nothing in sight */
} world;

static const float wants[2][2] = {{8, -2}, {-2, 4}}; /* learned: need x gives -> interest */

static float uniform(void) { /* -1 .. 1, the same on every machine */
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / 8388608.0 - 1);
}

static void begin(world *w) {
    memset(w, 0, sizeof *w);
    for (int i = 0; i < THINGS; i++) {
        float animal = i < ANIMALS, hungry = i % 3 == 0;
        w->position[i][0] = origin_x + 40 * uniform();
        w->position[i][1] = origin_y + 40 * uniform();
        if (i < ANIMALS) {
            w->velocity[i][0] = uniform();
            w->velocity[i][1] = uniform();
            w->need[i][0] = hungry;
            w->need[i][1] = 1 - hungry;
        }
        w->gives[i][0] = 1 - animal;
        w->gives[i][1] = animal;
    }
}

static void look(world *w) {
    for (int i = 0; i < ANIMALS; i++)
        for (int j = 0; j < THINGS; j++) {
            float dx = w->position[j][0] - w->position[i][0], dy = w->position[j][1] - w->position[i][1];
            int near_by = dx * dx + dy * dy < sight * sight;
            w->sees[i][j] = (uint8_t)(near_by && i != j);
            if (j < ANIMALS) w->sees_herd[i][j] = w->sees[i][j];
        }
}

/* Both descriptors point into the world and are made once; a frame only runs them. */
static attn_desc herd_desc(world *w) {
    attn_desc d = {0};
    d.score = ATTN_SCORE_GAUSSIAN; /* exact also far from the origin: the coordinates are subtracted first */
    d.sigma = sigma;
    d.q = attn_view_bhsd(w->position[0], 1, 1, ANIMALS, 2);
    d.k = attn_view_bhsd(w->position[0], 1, 1, ANIMALS, 2);
    d.v = attn_view_bhsd(w->velocity[0], 1, 1, ANIMALS, 2);
    d.mask = attn_view_u8(w->sees_herd[0], 2, ANIMALS, ANIMALS, 0, 0);
    d.out = attn_out_bhsd(w->herd[0], 1, 1, ANIMALS, 2);
    d.lse = attn_out_f32(w->herd_mass, 3, 1, 1, ANIMALS, 0);
    return d;
}

static attn_desc goal_desc(world *w) {
    attn_desc d = {0};
    d.score = ATTN_SCORE_BILINEAR;
    d.q = attn_view_bhsd(w->need[0], 1, 1, ANIMALS, 2);
    d.k = attn_view_bhsd(w->gives[0], 1, 1, THINGS, 2);
    d.v = attn_view_bhsd(w->position[0], 1, 1, THINGS, 2);
    d.bilinear = attn_view_f32(wants[0], 2, 2, 2, 0, 0);
    d.mask = attn_view_u8(w->sees[0], 2, ANIMALS, THINGS, 0, 0);
    d.out = attn_out_bhsd(w->goal[0], 1, 1, ANIMALS, 2);
    d.lse = attn_out_f32(w->goal_mass, 3, 1, 1, ANIMALS, 0);
    return d;
}

static void move(world *w, float seconds) {
    for (int i = 0; i < ANIMALS; i++) {
        float *v = w->velocity[i];
        for (int c = 0; c < 2; c++) {
            float push = 0; /* alone: keep going. An empty row's mass is -inf */
            if (isfinite(w->herd_mass[i])) push += 2 * (w->herd[i][c] - v[c]);
            if (isfinite(w->goal_mass[i])) push += 0.05f * (w->goal[i][c] - w->position[i][c]);
            v[c] += seconds * push;
        }
        for (int c = 0; c < 2; c++) w->position[i][c] += seconds * v[c];
    }
}

/* The largest error of both results against the formulas in double, before anything has moved. */
static double error_of(const world *w) {
    double most = 0;
    for (int i = 0; i < ANIMALS; i++) {
        double herd[3] = {0, 0, 0}, goal[3] = {0, 0, 0}; /* weighted x, weighted y, weight */
        for (int j = 0; j < THINGS; j++) {
            if (!w->sees[i][j]) continue;
            double dx = (double)w->position[i][0] - w->position[j][0];
            double dy = (double)w->position[i][1] - w->position[j][1];
            double near_by = j < ANIMALS ? exp(-(dx * dx + dy * dy) / (2.0 * sigma * sigma)) : 0;
            double interest = 0;
            for (int a = 0; a < 2; a++)
                for (int b = 0; b < 2; b++) interest += (double)w->need[i][a] * wants[a][b] * w->gives[j][b];
            interest = exp(interest);
            for (int c = 0; c < 3; c++) {
                herd[c] += near_by * (c < 2 ? w->velocity[j][c] : 1);
                goal[c] += interest * (c < 2 ? w->position[j][c] : 1);
            }
        }
        for (int c = 0; c < 2; c++) {
            double herd_off = fabs(w->herd[i][c] - (herd[2] > 0 ? herd[c] / herd[2] : 0));
            double goal_off = fabs(w->goal[i][c] - (goal[2] > 0 ? goal[c] / goal[2] : 0));
            if (most == most && !(herd_off <= most)) most = herd_off;
            goal_off /= 1000; /* places are numbers of thousands */
            if (most == most && !(goal_off <= most)) most = goal_off;
        }
    }
    return most;
}

/* How far an animal's velocity is from that of the herd around it, in metres per second, on average. */
static double discord_of(const world *w) {
    double sum = 0;
    for (int i = 0; i < ANIMALS; i++)
        sum += hypot(w->velocity[i][0] - w->herd[i][0], w->velocity[i][1] - w->herd[i][1]);
    return sum / ANIMALS;
}

static void print(const world *w, int frame) {
    char map[12][49]; /* 120 m by 120 m */
    memset(map, '.', sizeof map);
    for (int i = 0; i < 12; i++) map[i][48] = 0;
    for (int i = THINGS; i-- > 0;) {
        int x = (int)((w->position[i][0] - origin_x + 60) / 120 * 48);
        int y = (int)((w->position[i][1] - origin_y + 60) / 120 * 12);
        if (x >= 0 && x < 48 && y >= 0 && y < 12) map[y][x] = i >= ANIMALS ? 'F' : i % 3 == 0 ? 'h' : 'o';
    }
    printf("frame %3d: animal 0 at (%.2f, %.2f), herd around it (%.3f, %.3f), discord %.2f\n", frame, w->position[0][0],
           w->position[0][1], w->herd[0][0], w->herd[0][1], discord_of(w));
    for (int i = 0; i < 12; i++) printf("  %s\n", map[i]);
}

static attn_error err; /* of the latest call: which field broke which rule */
static int failures;

static void check(int ok, const char *what) {
    if (ok) return;
    printf("WRONG: %s\n", what);
    failures++;
}

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

int main(void) {
    static world w;
    size_t bytes, more;
    double most = 0, discord = 0;
    begin(&w);
    attn_desc herd = herd_desc(&w), goal = goal_desc(&w);
    must(attn_workspace_size(&herd, &bytes, &err));
    must(attn_workspace_size(&goal, &more, &err));
    if (more > bytes) bytes = more; /* the two run one after the other and share */
    void *workspace = malloc(bytes + 1);
    if (!workspace) return 1;
    herd.workspace = goal.workspace = workspace;
    herd.workspace_bytes = goal.workspace_bytes = bytes;

    for (int frame = 0; frame < FRAMES; frame++) {
        look(&w);
        must(attn_forward(&herd, &err));
        must(attn_forward(&goal, &err));
        double error = error_of(&w); /* a real game would leave this out */
        if (most == most && !(error <= most)) most = error;
        if (frame == 0) discord = discord_of(&w);
        if (frame % 60 == 0 || frame == FRAMES - 1) print(&w, frame);
        move(&w, 0.1f);
    }
    int in_loop = allocations;
    herd.workspace = NULL; /* to see that the counter counts */
    herd.workspace_bytes = 0;
    must(attn_forward(&herd, &err));
    free(workspace);

    check(in_loop == 0, "the frame loop allocated");
    check(allocations > in_loop, "the counter does not count");
    check(most <= 1e-5, "not what the formulas give in double");
    check(discord_of(&w) < discord / 2, "the herd does not turn together");
    printf("%d frames, %d allocations in them (%d in a call without workspace), largest error %.1e\n", FRAMES, in_loop,
           allocations - in_loop, most);
    return failures || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
