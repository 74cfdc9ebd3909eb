#pragma once
// Catch2, of major version 2 (one header) or 3 (several).

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
