/* nvcc -O3 -std=c++17 -arch=native train.cu attention.c kernels.cu -o train (Hopper: -arch=sm_90a) */
/* Training with both passes on the device: queries, keys and values are learned until attention gives the outputs
   that hidden ones gave. A step is forward, the loss's gradient, backward, the update, all on one stream; it is
   captured in a graph once and launched for every step. Nothing is allocated or copied in between. */
#include "device.h"

enum { H = 4, S = 96, D = 32, COUNT = H * S * D, STEPS = 400, SHOWN = 80 };

/* d_out = out - target, of the loss |out - target|^2 / 2 */
__global__ void subtract(float *d_out, const float *out, const float *target, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) d_out[i] = out[i] - target[i];
}
/* Adam (Kingma, Ba 2015) without its correction of the first steps. */
__global__ void update(float *x, const float *gradient, float *mean, float *square, int n, float rate) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    mean[i] += 0.1f * (gradient[i] - mean[i]);
    square[i] += 0.01f * (gradient[i] * gradient[i] - square[i]);
    x[i] -= rate * mean[i] / (sqrtf(square[i]) + 1e-6f);
}

struct learned {
    float *x, *gradient, *mean, *square;
};
static learned make_learned(float size) {
    learned l;
    float *x = random_floats(COUNT), *ones = random_floats(COUNT);
    for (int i = 0; i < COUNT; i++) x[i] *= size, ones[i] = 1e-4f;
    l.x = (float *)on_device(x, COUNT * sizeof *x);
    l.square = (float *)on_device(ones, COUNT * sizeof *ones);
    for (int i = 0; i < COUNT; i++) ones[i] = 0;
    l.gradient = (float *)on_device(ones, COUNT * sizeof *ones);
    l.mean = (float *)on_device(ones, COUNT * sizeof *ones);
    free(x), free(ones);
    return l;
}
static double loss_of(const float *d_out, cudaStream_t stream) {
    static float back[COUNT];
    double loss = 0;
    must_cuda(cudaMemcpyAsync(back, d_out, sizeof back, cudaMemcpyDeviceToHost, stream), "copying the loss");
    must_cuda(cudaStreamSynchronize(stream), "the stream");
    for (int i = 0; i < COUNT; i++) loss += (double)back[i] * back[i] / 2;
    return loss / COUNT;
}

int main() {
    const int threads = 256, blocks = (COUNT + threads - 1) / threads;
    attn_desc d = {};
    attn_grad g = {};
    attn_error err;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t step;
    size_t forward_bytes = 0, backward_bytes = 0;
    double first = 0, loss = 0;

    must_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    must_attn(attn_cuda_prepare(&err), &err, "attn_cuda_prepare"); /* before the capture, which allows no loading */
    float *target = (float *)on_device(NULL, COUNT * sizeof *target),
          *out = (float *)on_device(NULL, COUNT * sizeof *out);
    float *d_out = (float *)on_device(NULL, COUNT * sizeof *d_out),
          *stats = (float *)on_device(NULL, H * S * 2 * sizeof *stats);

    d.stream = stream;
    d.causal = 1;
    learned hidden[3] = {make_learned(1), make_learned(1), make_learned(1)}, l[3];
    d.q = attn_view_bhsd(hidden[0].x, 1, H, S, D);
    d.k = attn_view_bhsd(hidden[1].x, 1, H, S, D);
    d.v = attn_view_bhsd(hidden[2].x, 1, H, S, D);
    d.out = attn_out_bhsd(target, 1, H, S, D);
    must_attn(attn_forward(&d, &err), &err, "attn_forward");

    for (int i = 0; i < 3; i++) l[i] = make_learned(0.5f);
    d.q = attn_view_bhsd(l[0].x, 1, H, S, D);
    d.k = attn_view_bhsd(l[1].x, 1, H, S, D);
    d.v = attn_view_bhsd(l[2].x, 1, H, S, D);
    d.out = attn_out_bhsd(out, 1, H, S, D);
    d.stats = attn_out_f32(stats, 4, 1, H, S, 2);
    g.d_out = attn_view_bhsd(d_out, 1, H, S, D);
    g.dq = attn_out_bhsd(l[0].gradient, 1, H, S, D);
    g.dk = attn_out_bhsd(l[1].gradient, 1, H, S, D);
    g.dv = attn_out_bhsd(l[2].gradient, 1, H, S, D);
    must_attn(attn_workspace_size(&d, &forward_bytes, &err), &err, "attn_workspace_size");
    must_attn(attn_backward_workspace_size(&d, &g, &backward_bytes, &err), &err, "attn_backward_workspace_size");
    d.workspace_bytes = forward_bytes > backward_bytes ? forward_bytes : backward_bytes;
    d.workspace = on_device(NULL, d.workspace_bytes);

    must_cuda(cudaStreamSynchronize(stream), "the stream");
    must_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    must_attn(attn_forward(&d, &err), &err, "attn_forward");
    subtract<<<blocks, threads, 0, stream>>>(d_out, out, target, COUNT);
    must_attn(attn_backward(&d, &g, &err), &err, "attn_backward");
    for (int i = 0; i < 3; i++)
        update<<<blocks, threads, 0, stream>>>(l[i].x, l[i].gradient, l[i].mean, l[i].square, COUNT, 0.02f);
    must_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must_cuda(cudaGraphInstantiate(&step, graph, 0), "cudaGraphInstantiate");

    for (int i = 0; i < STEPS; i++) {
        must_cuda(cudaGraphLaunch(step, stream), "cudaGraphLaunch");
        if (i % SHOWN && i != STEPS - 1) continue;
        loss = loss_of(d_out, stream);
        if (i == 0) first = loss;
        printf("step %3d: loss %.6f\n", i, loss);
    }
    const bool ok = loss < first / 50;
    printf(ok ? "learned\n" : "WRONG: nothing was learned\n");
    return ok ? 0 : 1;
}
