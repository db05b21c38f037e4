/* A played libnvidia-ml.so.1 of one GPU whose settings are in the file that PLAYED_NVML names, so that several processes
   see the same GPU: four numbers: limit (mW), locked ceiling (MHz, 0: none), process on it, whether it ignores locks. */
#include <stdio.h>
#include <stdlib.h>
typedef struct { long limit, lock, pid, deaf; } State;
static State load(void) {
    State s = {700000, 0, 0, 0};
    FILE *f = fopen(getenv("PLAYED_NVML"), "r");
    if (f) { if (fscanf(f, "%ld %ld %ld %ld", &s.limit, &s.lock, &s.pid, &s.deaf) != 4) s.limit = 0; fclose(f); }
    return s;
}
static int store(State s) {
    FILE *f = fopen(getenv("PLAYED_NVML"), "w");
    if (!f) return 999;
    fprintf(f, "%ld %ld %ld %ld\n", s.limit, s.lock, s.pid, s.deaf);
    return fclose(f);
}
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "played error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)8; return index ? 2 : 0; }
int nvmlDeviceGetMaxClockInfo(void *h, int clock, unsigned *mhz) { *mhz = 1980; return clock == 1 ? 0 : 2; }
int nvmlDeviceGetClockInfo(void *h, int clock, unsigned *mhz) {
    State s = load();
    *mhz = s.lock && !s.deaf ? s.lock : 1980;
    return 0;
}
int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *mw) { *mw = load().limit; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *mw) { *mw = 700000; return 0; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *h, unsigned *lo, unsigned *hi) { *lo = 200000; *hi = 700000; return 0; }
int nvmlDeviceSetPowerManagementLimit(void *h, unsigned mw) { State s = load(); s.limit = mw; return store(s); }
int nvmlDeviceSetGpuLockedClocks(void *h, unsigned lo, unsigned hi) { State s = load(); s.lock = hi; return store(s); }
int nvmlDeviceResetGpuLockedClocks(void *h) { State s = load(); s.lock = 0; return store(s); }
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, Process *found) {
    State s = load();
    if (!s.pid) { *count = 0; return 0; }
    if (*count == 0) { *count = 1; return 7; }
    *count = 1;
    found[0] = (Process){(unsigned)s.pid, 0, 0, 0};
    return 0;
}
/* What a meter and an agent ask for: joules since the first question, 122 W and the cube of the clock (a process on it
   or not), in a file beside the other; a name, memory and load. */
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *mj) {
    char path[4096];
    struct timespec now;
    double last = 0, joules = 0, share;
    State s = load();
    snprintf(path, sizeof path, "%s.joules", getenv("PLAYED_NVML"));
    FILE *f = fopen(path, "a+");
    if (!f) return 999;
    flock(fileno(f), LOCK_EX); /* until it is closed: several processes read the meter */
    rewind(f);
    if (fscanf(f, "%lf %lf", &last, &joules) != 2) last = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double at = now.tv_sec + now.tv_nsec * 1e-9;
    share = (s.lock && !s.deaf ? s.lock : 1980) / 1980.0;
    if (last > 0) joules += (at - last) * (122.0 + 400.0 * share * share * share);
    if (ftruncate(fileno(f), 0) || fprintf(f, "%.6f %.6f\n", at, joules) < 0) return 999;
    fclose(f);
    *mj = (unsigned long long)(joules * 1e3);
    return 0;
}
int nvmlDeviceGetName(void *h, char *name, unsigned length) { snprintf(name, length, "Played GPU"); return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, "0"); return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *mw) { *mw = load().limit; return 0; }
typedef struct { unsigned gpu, memory; } Load;
int nvmlDeviceGetUtilizationRates(void *h, Load *found) { *found = (Load){90, 20}; return 0; }
