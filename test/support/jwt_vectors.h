/* Made by joserfc 1.8.0: one key of each kind, one token of each algorithm, all with the same claims. See test_jwt.c.
 */
#ifndef SUPPORT_JWT_VECTORS_H
#define SUPPORT_JWT_VECTORS_H

#include "door/jwt.h"

static const char vector_keys[] =
    "{\"keys\":[{\"n\":\"wv_t2PjcvzkZjd4yN2U0LFTckBBdXZmoaPEnz-B1dVEcY2QV3_W9U5NA-Zd3MOASPGOxYaIx8xLpaqsJEA9qe"
    "nzoL7rzCNQcAbYcDqzyYVHnGGh8eGc8qTnK-0qQqBMxdQyVQVgmWxPdyQvOJyjOo5jk06MBZ6vTxunoJGCTuivq39EnxDPvh_ec-"
    "k5cb5t99UCVz3-hAl6h-GaT0ZzISCUnVE8ZJcaiT65-7HeJHlKAVo1syicjQMkNoYi5CrFIJZi7kyTF2HqBqhbb7bJZJ9LibwZY-"
    "n2g5b1IjSlebJkYScIbDxa_UIClLosxjo878vO86ovYu3ByAIktisiZUw\",\"e\":\"AQAB\",\"kty\":\"RSA\",\"kid\":\"rsa\"},{\"crv"
    "\":\"P-256\",\"x\":\"DqRZmdSOv9KbPP4bEn4lsCPeI3ivlF_Eg1vpnu_-RDs\",\"y\":\"rlby8YmPbOSZtlczQYbubpnJPGIHKSLXkfC"
    "akZZlBCU\",\"kty\":\"EC\",\"kid\":\"p256\"},{\"crv\":\"P-384\",\"x\":\"6WpiMz1cFaL_"
    "7pRfc2nwWSfYSYg5e9Rfp2jOjJUI7H7pp"
    "5Y3rV7blJlh-gBxUO6C\",\"y\":\"nRM_GljPPO3kLZSIl4GUKq-2Kfu3OZotzVh8gSmzBhtN_BubzILfDc4T40DXCFtj\",\"kty\":\"E"
    "C\",\"kid\":\"p384\"},{\"crv\":\"Ed25519\",\"x\":\"rFU7Yr04OamHWMIvsJsDN8ajcZrcNvbQjHRPT85H1II\",\"kty\":\"OKP\","
    "\"kid"
    "\":\"ed\",\"use\":\"sig\",\"alg\":\"EdDSA\"},{\"n\":\"sylLOt2qlkz-O9-Pz6244TbUwS-BclMu1qSXmey9cOwrp1MfzlPKYpSi_bM9"
    "dyMRDDOqzZhtSrBNniEZRkc5642-fKii2GeSaYjnECnxkxIS5iTwePKo6YkglM2C8lfV4pIsOgchB0oDXRqCH3Lpdemz_Wa_WCNG"
    "pefACwJMd68\",\"e\":\"AQAB\",\"kty\":\"RSA\",\"kid\":\"small\"},{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":"
    "\"shared\"},{\"crv"
    "\":\"P-256\",\"x\":\"DqRZmdSOv9KbPP4bEn4lsCPeI3ivlF_Eg1vpnu_-RDs\",\"y\":\"rlby8YmPbOSZtlczQYbubpnJPGIHKSLXkfC"
    "akZZlBCU\",\"kty\":\"EC\",\"kid\":\"enc\",\"use\":\"enc\"}]}";

static const char vector_rs256[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwiYXVkIjp"
    "bIm90aGVyIiwib25jZWQiXSwic3ViIjoiYW5uIiwib3JnIjp7InRlbmFudCI6ImFjbWUifSwicm9sZXMiOlsieCIsIm9wcyJdLCJ"
    "zY29wZSI6InJlZnVuZC4qIG9yZGVyLmdldCIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.hb_hWUFZ_xVspJhg"
    "34hXLf-OGcF-cgexojpdR5MBildadxpGG46knqadrPRObWXOpowUg6t7JkgLHXvE7lNpZLubDnqUiaVZVuYhqhl1S9svSOdGffZe"
    "bJtJJvf9JR9IrteiAV_G6krTazwi2TbbBhQAbBEx3FtCPybvlfrVmRKnozK2BGfVJCrB12C7qVqsVuS-2tnhmuki89oHXuhx2mZB"
    "o6ail_agRx2UT-PWUcWIoKIaR2zxjzMd_pJzyRNwvMxFD56igu3m8HF3de7DUds16ofgzQL3j7gwF1hmnQWOsAXHF0kskf6ANVUR"
    "kgNF4RRa6xMlDXuFkyJn1FpjvA";

static const char vector_rs384[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzM4NCIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwiYXVkIjp"
    "bIm90aGVyIiwib25jZWQiXSwic3ViIjoiYW5uIiwib3JnIjp7InRlbmFudCI6ImFjbWUifSwicm9sZXMiOlsieCIsIm9wcyJdLCJ"
    "zY29wZSI6InJlZnVuZC4qIG9yZGVyLmdldCIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.njAxrj_UeFFGUqJo"
    "4Z2_ESXv0U834MZfj32rEmek_vCPuWzu7xO93UoSmdIk5-eiDKNhCKAwEMbj2JAzsDmGsWoihV6kdJvYa5FKMFUThy89QA3ONZ15"
    "kZSuEWpnCN8DGDqGKY9UVcTcVpI66kkMPnjL63g-wZrVDIQZQuNkgQFO38IuVQk-S9WddrsJhpvntTbMuGG_WRRWLCF9qpZIwXgm"
    "3FYTNYa5P9Xbqtv4il-Q51GO8weyXvnZRobt_b_ut514mqSxn1NjUlkJGdxya14XUDO_GDNkaiASiZqNYCN06LYDRBrv_FHDSsjQ"
    "dR-qheeh-UOrvFPGiv0F_l-ygA";

static const char vector_rs512[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzUxMiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwiYXVkIjp"
    "bIm90aGVyIiwib25jZWQiXSwic3ViIjoiYW5uIiwib3JnIjp7InRlbmFudCI6ImFjbWUifSwicm9sZXMiOlsieCIsIm9wcyJdLCJ"
    "zY29wZSI6InJlZnVuZC4qIG9yZGVyLmdldCIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.FYhaH0YIUvm2ukwn"
    "pFR3OvIXn-Ti8FJiQlVNY_wgJgG9vg96kR8UkSHMr5arnW5MyekNc0g-XcsL267Mf_vKAvayiNqLCFF_8WTFXu7c5vKBSZ08Escw"
    "Q51XlAJJ8_fEZq8DsAjASFwHiGxBix52edVQnmeJNUVHULSM6m6OqM7JTssaBYv2nfOQeXcCZey37nUot8YiXPSEeuFnekt00REZ"
    "_XxZqJf91epfcI8-LF1YTYdJ3_1MLs7RNwAKcLay5yUZYzpIxup-Z__KMVKrT6fSDg4m2U76LVqtBILGf9ImtjboO4XFQPDSnCfc"
    "qDCXDzZ_FJGblja1fkVuaLCStQ";

static const char vector_ps256[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJQUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwiYXVkIjp"
    "bIm90aGVyIiwib25jZWQiXSwic3ViIjoiYW5uIiwib3JnIjp7InRlbmFudCI6ImFjbWUifSwicm9sZXMiOlsieCIsIm9wcyJdLCJ"
    "zY29wZSI6InJlZnVuZC4qIG9yZGVyLmdldCIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.UhWRalv-Mli0VQOP"
    "kab70l-WyzPacgn2nE6iI4KVVzOqZaQEzXX_uKwtpwmQsRpJUU8WP0fIUUux-7w91vtigqLGCoqOuXe_M_CCoWTU0vKtmKxuXQnL"
    "dyMKwucRyruBxAZvbXEffvXR4wMiFp0glRSDmK8pFJam7so09H-M8EXiTYFcCQNwpp_3X9j1mZt_j9aYY59Pmq7vEUa9-0b-pRx4"
    "JT1opVIFvZQRlDg0fN4Dcn0HIXuCYan5q9oxRI9Ao_wwqB9e6439nmAHgA4t7RnZDMV44xkMBtRcfjtjGYiJeD4UBtFs8cd00YdS"
    "V_bbqUDWyOjkqNKRJJY4YJuPXA";

static const char vector_es256[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiIsImtpZCI6InAyNTYifQ.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwiYXVkI"
    "jpbIm90aGVyIiwib25jZWQiXSwic3ViIjoiYW5uIiwib3JnIjp7InRlbmFudCI6ImFjbWUifSwicm9sZXMiOlsieCIsIm9wcyJdL"
    "CJzY29wZSI6InJlZnVuZC4qIG9yZGVyLmdldCIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.53FQH5H7FtrMBT"
    "E4UZH38RVlHyDZNQo_WvVIK7ALCf953z72shviwvJaZNDlIEIdeMf1IqqHOmll9omO1j3MTQ";

static const char vector_es384[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzM4NCIsImtpZCI6InAzODQifQ.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwiYXVkI"
    "jpbIm90aGVyIiwib25jZWQiXSwic3ViIjoiYW5uIiwib3JnIjp7InRlbmFudCI6ImFjbWUifSwicm9sZXMiOlsieCIsIm9wcyJdL"
    "CJzY29wZSI6InJlZnVuZC4qIG9yZGVyLmdldCIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.475Mou0vsH-Wcc"
    "PMDenIxWInt1TKMkoFe-ogBXZhZYyVkNYQEwdbG7kMHVy9PglfBJY2HF52o_j2dExXdcXAG_1UPWT0bHPDiIZTUg6uaSHMOL7zds"
    "DZKjbRXJhaJXqT";

static const char vector_eddsa[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJFZERTQSIsImtpZCI6ImVkIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwiYXVkIjpb"
    "Im90aGVyIiwib25jZWQiXSwic3ViIjoiYW5uIiwib3JnIjp7InRlbmFudCI6ImFjbWUifSwicm9sZXMiOlsieCIsIm9wcyJdLCJz"
    "Y29wZSI6InJlZnVuZC4qIG9yZGVyLmdldCIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.OfIzgrTUxqse9F6dk"
    "3VJIpE0fE2jeiBJ2zwdoOw9Q3cyRlC_h0Ora7PpSK7KUqKb663zYGOT2Pie167vTadmDQ";

static const struct {
    enum jwt_algorithm algorithm;
    const char *token;
} vectors[] = {
    {JWT_RS256, vector_rs256}, {JWT_RS384, vector_rs384}, {JWT_RS512, vector_rs512}, {JWT_PS256, vector_ps256},
    {JWT_ES256, vector_es256}, {JWT_ES384, vector_es384}, {JWT_EDDSA, vector_eddsa},
};

#endif
