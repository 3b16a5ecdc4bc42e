"""Which text some bytes are, where that is sure (D11)."""

import codecs
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files_app import charset

CODE = "def main(argv):\n    return [name for name in argv]\n"
TEXTS = {
    "shift_jis": "# 設定を読み込む\n# ファイルが見つからない場合はエラー\n",
    "gbk": "# 读取配置文件\n# 如果找不到文件就报错\n",
    "gb18030": "# 读取配置文件 𠀀\n# 如果找不到文件就报错，请检查\n",
    "big5": "# 讀取設定檔案\n# 如果找不到檔案就報錯\n",
    "euc-jp": "# 設定を読み込む\n# ファイルが見つからない場合はエラー\n",
    "euc-kr": "# 설정 파일을 읽는다\n# 파일이 없으면 오류\n",
    "iso-8859-1": "Höhe\n",
    "windows-1252": "Là, déçue. « Bonjour », l’été coûte 5 €.\n",
    "windows-1250": "# Zażółć gęślą jaźń\n# źródło błędu w pliku, ścieżka względna\n",
    "windows-1251": "# Чтение настроек\n# если файл не найден, ошибка\n",
    "koi8-r": "# Чтение настроек\n# если файл не найден, ошибка\n",
    "utf-16le": "# naïve\n",
    "utf-16be": "# naïve\n",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("code", ["", CODE, CODE * 100])
def test_texts(name: str, code: str) -> None:
    """However much around them is ASCII."""
    text = code + TEXTS[name]
    assert charset.decode(text.encode(name)) == (text, name)


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        (codecs.BOM_UTF16_LE, "utf-16le"),
        (codecs.BOM_UTF16_BE, "utf-16be"),
        (codecs.BOM_UTF32_LE, "utf-32le"),
        (codecs.BOM_UTF32_BE, "utf-32be"),
    ],
)
def test_a_mark_is_believed_unless_it_lies(mark: bytes, name: str) -> None:
    assert charset.decode(mark + "日本\n".encode(name)) == ("日本\n", name)
    assert charset.decode(mark + b"\x00\xd8\x00") is None
    assert charset.decode(mark + "a\x00b".encode(name)) is None


@given(st.text())
def test_utf_8_is_utf_8(text: str) -> None:
    expected = None if "\x00" in text else (text, "")
    assert charset.decode(text.encode()) == expected or "\x00" in text


@pytest.mark.parametrize(
    "data",
    [
        "naïve é à ".encode() * 20 + b"\xe9t\xe9",  # half UTF-8
        "é".encode() * 500 + b"\xe9" * 500,
        "配置=值\n".encode("gbk"),  # as likely Korean
        "# файл\n".encode("cp1251"),
        "Ayarları oku, şu iş için dosya bulunamadığında".encode("cp1254"),
        b"\x7fELF\x02\x01\x01" + bytes(200) + b"\xe9",
        b"caf\xe9\x1b\x02",
        b"text\n" * 1000 + b"\xff",
        bytes(range(256)),
        b"\xff\x00",
        bytes(range(128, 256)),
        "a".encode("utf-16-le") * 50 + b"\x00",  # half a character more
    ],
)
def test_what_is_not_sure_stays_bytes(data: bytes) -> None:
    assert charset.decode(data) is None


def test_random_bytes_stay_bytes() -> None:
    data = os.urandom(5 * 2**20)
    assert charset.decode(data) is None
    assert charset.decode(data.translate(None, bytes(range(32)) + b"\x7f")) is None


def test_it_takes_little_time() -> None:
    """However large the file, and however its lines are made."""
    began = time.process_time()
    for data in (b"\n\xe9" * 2_500_000, b"h\xe9h\xe9 " * 10**6, TEXTS["gbk"].encode("gbk") * 10**5):
        charset.decode(data)
    assert time.process_time() - began < 5
