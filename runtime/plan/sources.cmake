list(APPEND runtime_sources
  plan/against.cpp
  plan/calibration.cpp
  plan/calibration_files.cpp
  plan/constants.cpp
  plan/cost_model.cpp
  plan/group_links.cpp
  plan/plan.cpp
  plan/published.cpp
  plan/rank_ledger.cpp
  plan/recommend.cpp
  plan/self_check.cpp
  plan/sum_model.cpp)
page_asset(kPlanConstants ${CMAKE_CURRENT_SOURCE_DIR}/plan/constants.json)
