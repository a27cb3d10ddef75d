/* version.h - what bench/versions.c asks of one version of attn.h, which bench/version_shim.c has in an object of its
   own. Include after measure.h. */
typedef struct version_row {
    job job;
    int32_t way; /* how the job is called: 0 as measure.h does, 'w' attn_workspace_size before each call, 'p' the tasks
                    of a plan made once, 'm' attn_mha, with kind 'g' attn_mha_backward */
    float softcap;
    int32_t scalar; /* nonzero: small enough for the scalar kernels too */
} version_row;

typedef struct version {
    int32_t number;               /* attn_version() */
    int32_t (*isa)(const char *); /* the instruction set of this name, -1 where this machine or version lacks it */
    /* The call of a row, whose data exist, on an instruction set and on the threads of a pool: one for all versions, as
       the threads of another would spin while they wait for work. NULL: refused, and refusal() says why. */
    void *(*prepare)(const version_row *, int32_t isa, struct pool *threads);
    const char *(*refusal)(void);
    size_t (*bytes)(const void *call);               /* of workspace */
    void (*give)(void *call, void *workspace);       /* before the first run */
    int32_t (*run)(const void *call, int32_t times); /* 0: refused */
} version;
