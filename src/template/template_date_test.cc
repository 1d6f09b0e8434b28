// What is covered: dates as templates print them. How: days that a test names.
#include "template/template_date.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma {
namespace {

constexpr std::int64_t kHour = 3600;

TEST(TemplateDate, IsThatOfPythonsStrftime) {
  const auto day = begin_of_day("2026-11-28");
  ASSERT_TRUE(day.ok());
  EXPECT_EQ(date_text("%d %b %Y", *day), "28 Nov 2026");
  EXPECT_EQ(date_text("%A, %B %-d | %H:%M:%S", *day), "Saturday, November 28 | 00:00:00");
  EXPECT_EQ(date_text("", *day), "");
  EXPECT_EQ(date_text("100%%", *day), "100%");
}

TEST(TemplateDate, IsTheSameAllDay) {
  const auto day = begin_of_day("2024-02-29");
  ASSERT_TRUE(day.ok());
  EXPECT_EQ(date_text("%Y-%m-%d", *day + 23 * kHour), "2024-02-29");
  EXPECT_EQ(date_text("%Y-%m-%d", *day + 24 * kHour), "2024-03-01");
}

TEST(TemplateDate, WhatDoesNotFitIsNothing) {
  EXPECT_EQ(date_text("%99999Y", 0), "");
}

TEST(TemplateDate, DaysThatThereAreNotAreRefused) {
  for (const char* const day : {"", "today", "2026-13-01", "2026-00-10", "2026-02-29", "2026-1-1",
                                "2026-01-00", "2026-01-01 ", "2026/01/01", "-026-01-01"}) {
    EXPECT_FALSE(begin_of_day(day).ok()) << day;
  }
}

}  // namespace
}  // namespace stemma
