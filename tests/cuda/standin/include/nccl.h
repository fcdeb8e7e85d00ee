/* nccl.h - the stand-in's NCCL: the functions that the backend calls (sim_nccl.c). */
#ifndef CUDASIM_NCCL_H
#define CUDASIM_NCCL_H

#include "cuda_runtime_api.h"

#include <stddef.h>

typedef struct ncclComm *ncclComm_t;
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInvalidArgument = 4
} ncclResult_t;
typedef enum { ncclFloat32 = 7 } ncclDataType_t;

enum { NCCL_UNIQUE_ID_BYTES = 128 };
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank);
ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t rc);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);

#endif
