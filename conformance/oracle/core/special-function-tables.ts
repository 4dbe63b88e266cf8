/**
 * The tables of numerics.md §7.11. This is the data of conformance/vectors/special-functions.json, which published code cannot
 * import; conformance/tests/oracle/special-functions.test.ts compares the two.
 */

/** The table of a quadratic in integers. The names are those of §7.11. */
export interface Quadratic {
  readonly xBits: number;
  readonly sqShift: number;
  readonly c0Shift: number;
  readonly c1Shift: number;
  readonly c2Shift: number;
  readonly bias: number;
  readonly rows: Readonly<Record<"c0" | "c1" | "c2", readonly number[]>>;
}

/** The quadratics of tanh for inputs with the biased exponent `exponent`. */
export interface TanhBinade extends Quadratic {
  readonly exponent: number;
  readonly dropped: number;
  readonly fractionBits: number;
}

export const EX2: Quadratic = {
  xBits: 17,
  sqShift: 0,
  c0Shift: 13,
  c1Shift: 0,
  c2Shift: 0,
  bias: 30690,
  rows: {
    c0: [
      33554432, 33919815, 34289179, 34662562, 35040015, 35421574, 35807289, 36197206, 36591369, 36989822,
      37392613, 37799794, 38211406, 38627501, 39048128, 39473334, 39903170, 40337687, 40776934, 41220967,
      41669833, 42123589, 42582283, 43045974, 43514714, 43988558, 44467562, 44951783, 45441275, 45936098,
      46436311, 46941968, 47453132, 47969864, 48492222, 49020266, 49554062, 50093671, 50639156, 51190579,
      51748008, 52311507, 52881143, 53456980, 54039088, 54627535, 55222390, 55823722, 56431604, 57046103,
      57667294, 58295251, 58930045, 59571751, 60220444, 60876202, 61539101, 62209217, 62886631, 63571421,
      64263669, 64963455, 65670860, 66385969,
    ],
    c1: [
      22713, 22960, 23210, 23463, 23718, 23977, 24238, 24502, 24768, 25038, 25311, 25586, 25865, 26147, 26431,
      26719, 27010, 27304, 27602, 27902, 28206, 28513, 28824, 29138, 29455, 29776, 30100, 30428, 30759, 31094,
      31432, 31775, 32121, 32471, 32824, 33182, 33543, 33908, 34277, 34651, 35028, 35409, 35795, 36185, 36579,
      36977, 37380, 37787, 38198, 38614, 39035, 39460, 39889, 40324, 40763, 41207, 41655, 42109, 42568, 43031,
      43500, 43973, 44452, 44936,
    ],
    c2: [
      494, 501, 506, 511, 518, 521, 527, 532, 541, 546, 551, 559, 564, 568, 577, 583, 589, 596, 600, 609, 615,
      622, 627, 633, 641, 647, 655, 661, 670, 677, 686, 691, 699, 705, 715, 721, 730, 739, 748, 753, 763, 773,
      779, 787, 796, 806, 813, 822, 833, 842, 849, 858, 870, 877, 887, 896, 909, 917, 925, 938, 946, 959, 969,
      980,
    ],
  },
};

export const TANH: readonly TanhBinade[] = [
  {
    exponent: 119,
    dropped: 6,
    fractionBits: 45,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 6,
    c2Shift: 7,
    bias: 0,
    rows: { c0: [4194304], c1: [16384], c2: [-1] },
  },
  {
    exponent: 120,
    dropped: 6,
    fractionBits: 44,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 6,
    c2Shift: 7,
    bias: 0,
    rows: { c0: [4194240], c1: [16383], c2: [-3] },
  },
  {
    exponent: 121,
    dropped: 6,
    fractionBits: 43,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 6,
    c2Shift: 7,
    bias: 0,
    rows: { c0: [4193984], c1: [16381], c2: [-13] },
  },
  {
    exponent: 122,
    dropped: 5,
    fractionBits: 42,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 4,
    c2Shift: 5,
    bias: 0,
    rows: { c0: [4192944, 6286864], c1: [32738, 32697], c2: [-41, -55] },
  },
  {
    exponent: 123,
    dropped: 5,
    fractionBits: 41,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 4,
    c2Shift: 5,
    bias: 0,
    rows: { c0: [4188848, 6273072], c1: [32646, 32488], c2: [-159, -222] },
  },
  {
    exponent: 124,
    dropped: 4,
    fractionBits: 40,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 2,
    c2Shift: 3,
    bias: 0,
    rows: {
      c0: [4172596, 5200620, 6218744, 7225152],
      c1: [64532, 63972, 63296, 62506],
      c2: [-559, -676, -790, -891],
    },
  },
  {
    exponent: 125,
    dropped: 4,
    fractionBits: 39,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 2,
    c2Shift: 3,
    bias: 0,
    rows: {
      c0: [4109040, 5078604, 6012224, 6904992],
      c1: [61636, 59560, 57143, 54451],
      c2: [-2069, -2412, -2686, -2894],
    },
  },
  {
    exponent: 126,
    dropped: 4,
    fractionBits: 38,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 2,
    c2Shift: 3,
    bias: 0,
    rows: {
      c0: [3876500, 4652328, 5328052, 5904836],
      c1: [51571, 45374, 39063, 33011],
      c2: [-6162, -6288, -6038, -5543],
    },
  },
  {
    exponent: 127,
    dropped: 3,
    fractionBits: 37,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 0,
    c2Shift: 1,
    bias: 0,
    rows: {
      c0: [3194386, 3394478, 3557986, 3690285, 3796488, 3881201, 3948430, 4001567],
      c1: [54922, 45102, 36634, 29501, 23590, 18760, 14850, 11716],
      c2: [-9823, -8478, -7144, -5923, -4842, -3922, -3144, -2509],
    },
  },
  {
    exponent: 128,
    dropped: 2,
    fractionBits: 39,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 0,
    c2Shift: 1,
    bias: 0,
    rows: {
      c0: [
        16173728, 16305345, 16408581, 16489421, 16552657, 16602069, 16640655, 16670765, 16694254, 16712570,
        16726848, 16737977, 16746648, 16753405, 16758669, 16762770,
      ],
      c1: [
        36874, 28942, 22674, 17746, 13870, 10835, 8457, 6599, 5146, 4012, 3127, 2437, 1899, 1479, 1152, 897,
      ],
      c2: [
        -7973, -6295, -4949, -3892, -3047, -2388, -1867, -1460, -1139, -889, -693, -541, -421, -327, -254,
        -197,
      ],
    },
  },
  {
    exponent: 129,
    dropped: 3,
    fractionBits: 37,
    xBits: 17,
    sqShift: 0,
    c0Shift: 15,
    c1Shift: 0,
    c2Shift: 1,
    bias: 0,
    rows: {
      c0: [4191500, 4193272, 4193924, 4194164, 4194253, 4194285, 4194297, 4194301],
      c1: [659, 243, 89, 33, 12, 5, 2, 1],
      c2: [-438, -162, -58, -22, -8, -4, -2, -1],
    },
  },
];
