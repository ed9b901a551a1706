/* Asks for memory in known lines of C++. Of each request that stands at the end it prints "LINE BYTES". */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#define OK(call) do { if ((call) != 0) { std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #call); std::abort(); } } while (0)
#define MIB(n) (std::size_t(n) << 20)
#define SITE __attribute__((noinline, noclone))
/* Keeps a call from being the last thing that its function does. */
#define HERE __asm__ volatile("" ::: "memory")

namespace driver {
template <class... Parameters>
int call(const char *name, Parameters... parameters) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = library ? dlsym(library, name) : nullptr;
    return function ? reinterpret_cast<int (*)(Parameters...)>(function)(parameters...) : -1;
}

void start() {
    int device;
    void *context;
    OK(call("cuInit", 0u));
    OK(call("cuDeviceGet", &device, 0));
    OK(call("cuDevicePrimaryCtxRetain", &context, device));
    OK(call("cuCtxSetCurrent", context));
}

/* In the line of its use: inlined there in every build. */
#define ASK(bytes) ({ unsigned long long m_; OK(asks(&m_, std::size_t(bytes))); std::printf("%d %zu\n", __LINE__, std::size_t(bytes)); m_; })
int (*asks)(unsigned long long *, std::size_t);
} // namespace driver
using driver::asks;

struct Early {
    SITE Early() {
        driver::start();
        asks = reinterpret_cast<int (*)(unsigned long long *, std::size_t)>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2"));
        ASK(MIB(2));
        HERE;
    }
};
/* Before main. */
static Early early;

template <int N>
struct Layer {
    unsigned long long weights;
    SITE Layer() {
        weights = ASK(MIB(N));
        HERE;
    }
};

struct Module {
    virtual ~Module() = default;
    virtual unsigned long long forward(int) = 0;
};

struct Attention final : Module {
    SITE unsigned long long forward(int depth) override {
        if (depth) {
            unsigned long long inner = forward(depth - 1);
            HERE;
            return inner;
        }
        unsigned long long memory = ASK(MIB(7));
        HERE;
        return memory;
    }
};

static inline __attribute__((always_inline)) unsigned long long inlined(std::size_t bytes) {
    unsigned long long memory = ASK(bytes);
    HERE;
    return memory;
}

struct Guard {
    SITE ~Guard() {
        ASK(MIB(5));
        HERE;
    }
};

SITE static void unwinds() {
    try {
        Guard guard;
        throw std::runtime_error("a frame goes while memory is asked for");
    } catch (const std::exception &) {
        ASK(MIB(3));
        HERE;
    }
}

SITE static void compares() {
    std::vector<int> numbers{3, 1, 2};
    bool is_done = false;
    std::sort(numbers.begin(), numbers.end(), [&](int a, int b) {
        if (!is_done) {
            is_done = true;
            ASK(MIB(13));
            HERE;
        }
        return a < b;
    });
}

int main() {
    Layer<17> first;
    auto second = std::make_unique<Layer<19>>();
    std::unique_ptr<Module> module = std::make_unique<Attention>();
    for (int depth : {0, 10, 90}) module->forward(depth);
    std::function<void(int)> held = [](int mib) {
        ASK(MIB(mib));
        HERE;
    };
    held(23);
    inlined(MIB(29));
    unwinds();
    compares();
    std::thread([] {
        void *context;
        int device;
        OK(driver::call("cuDeviceGet", &device, 0));
        OK(driver::call("cuDevicePrimaryCtxRetain", &context, device));
        OK(driver::call("cuCtxSetCurrent", context));
        ASK(MIB(31));
        HERE;
    }).join();
    return 0;
}
