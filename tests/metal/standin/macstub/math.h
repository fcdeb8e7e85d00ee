#pragma once
#define INFINITY __builtin_inff()
#define NAN      __builtin_nanf("")
float sqrtf(float);
float fabsf(float);
float fmaf(float, float, float);
float expf(float);
float powf(float, float);
double sqrt(double);
double pow(double, double);
float frexpf(float, int *);
double fabs(double);
double fmax(double, double);
double ldexp(double, int);
