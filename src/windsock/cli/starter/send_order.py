"""Signs an order and sends it: python send_order.py <order number> <item> <amount>."""

import hashlib
import hmac
import json
import os
import sys
import time

import httpx

number, item, amount = sys.argv[1:]
body = json.dumps({"item": item, "amount": int(amount)}).encode()
now = str(int(time.time()))
signature = hmac.new(os.environ["SHOP_SECRET"].encode(), now.encode() + b"." + body, hashlib.sha256)

answer = httpx.post(
    f"{os.environ['AIRFLOW__API__BASE_URL']}/windsock/hooks/orders",
    content=body,
    headers={
        "Content-Type": "application/json",
        "X-Windsock-Timestamp": now,
        "X-Windsock-Signature": f"sha256={signature.hexdigest()}",
        "X-Windsock-Delivery": number,
    },
)
print(answer.status_code, answer.text)
sys.exit(not answer.is_success)
