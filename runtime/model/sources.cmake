list(APPEND runtime_sources
     model/config.cpp
     model/config_json.cpp
     model/converting.cpp
     model/file_weights.cpp
     model/gguf.cpp
     model/gguf_model.cpp
     model/gguf_tokenizer.cpp
     model/json_file.cpp
     model/mapped_file.cpp
     model/named.cpp
     model/open_model.cpp
     model/safetensors.cpp
     model/slice.cpp
     model/synthetic.cpp
     model/weights.cpp)
