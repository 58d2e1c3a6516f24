import json, os, statistics, torch, time
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend
out=open(os.environ['OUT']+'/m.jsonl','w')
dev='cuda'
flush=torch.empty(256*2**20,dtype=torch.uint8,device=dev)
def timed(fn, reps=12):
    for _ in range(3): fn()
    torch.cuda.synchronize()
    g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g): fn()
    ts=[]
    e=[torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for _ in range(reps):
        flush.zero_(); e[0].record(); g.replay(); e[1].record(); torch.cuda.synchronize(); ts.append(e[0].elapsed_time(e[1])*1e-3)
    return statistics.median(ts)
def chained(fns, reps=8):
    """seconds of each of many kernels in one graph over rotating buffers"""
    for f in fns: f()
    torch.cuda.synchronize()
    g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for f in fns: f()
    e=[torch.cuda.Event(enable_timing=True) for _ in range(2)]; ts=[]
    g.replay()
    for _ in range(reps):
        torch.cuda.synchronize(); e[0].record(); g.replay(); e[1].record(); torch.cuda.synchronize(); ts.append(e[0].elapsed_time(e[1])*1e-3/len(fns))
    return statistics.median(ts)
def put(**k): out.write(json.dumps(k)+'\n'); out.flush(); print(k,flush=True)
# streams: y = x + x2 (3 passes), rms norm, copy
pool=torch.randn(2*2**30,device=dev,dtype=torch.bfloat16)  # 4 GiB
for lg in (12,14,16,18,20,22,24,26,28):
    n=2**lg; count=max(4,min(64,2**30//n)); 
    offs=[(i*n*2)%(2**31-2*n) for i in range(count)]
    a=[pool[o:o+n] for o in offs]; b=[pool[o+n:o+2*n] for o in offs]
    put(kind='copy',bytes=4*n,s=chained([lambda x=x,y=y: y.copy_(x) for x,y in zip(a,b)]))
    put(kind='mul_',bytes=4*n,s=chained([lambda x=x: x.mul_(1.0) for x in a]))
    if n>=4096:
        w=torch.ones(4096,device=dev,dtype=torch.bfloat16)
        put(kind='rmsnorm',bytes=4*n,s=chained([lambda x=x: F.rms_norm(x.view(-1,4096),(4096,),w) for x in a]))
del pool
for backend in ('CUDNN_ATTENTION','FLASH_ATTENTION'):
  for (B,T,H,KV,D) in [(1,1024,32,32,128),(1,2048,32,32,128),(1,4096,32,32,128),(1,8192,32,32,128),(1,16384,32,32,128),(4,2048,32,32,128),(8,1024,16,16,128),(2,4096,8,8,128),(1,8192,8,8,128),(4,4096,16,16,64),(1,8192,32,32,64),(1,8192,16,16,96),(1,8192,16,16,256),(1,8192,32,8,128),(4,2048,64,8,128),(1,32768,8,8,128)]:
   for causal in (True,False):
    if not causal and (B,T)!=(1,8192): continue
    if backend=='FLASH_ATTENTION' and T not in (4096,8192): continue
    try:
        q=torch.randn(B,H,T,D,device=dev,dtype=torch.bfloat16,requires_grad=True)
        k=torch.randn(B,KV,T,D,device=dev,dtype=torch.bfloat16,requires_grad=True)
        v=torch.randn(B,KV,T,D,device=dev,dtype=torch.bfloat16,requires_grad=True)
        with sdpa_kernel(getattr(SDPBackend,backend)):
            f=lambda: F.scaled_dot_product_attention(q,k,v,is_causal=causal,enable_gqa=H!=KV)
            with torch.no_grad(): fs=timed(f)
            o=f(); go=torch.randn_like(o)
            def step():
                o=f(); torch.autograd.grad(o,(q,k,v),go)
            s=torch.cuda.Stream()
            both=timed(step)
        put(kind='attn',backend=backend,B=B,T=T,H=H,KV=KV,D=D,causal=causal,forward=fs,both=both,ratio=(both-fs)/fs)
    except Exception as ex: put(kind='attn',backend=backend,B=B,T=T,H=H,D=D,causal=causal,error=str(ex)[:100])
# training-like gemms bf16: forward, dgrad, wgrad shapes and odd ones
for (m,n,k) in [(8192,12288,4096),(8192,4096,12288),(4096,12288,8192),(4096,4096,16384),(16384,2560,2560),(2560,10240,16384),(3072,3072,3072),(6144,6144,6144),(2048,50304,2048),(4096,128256,4096),(16384,1536,4096),(16384,4096,512),(8192,640,5120),(1000,1000,1000),(300,5000,4096),(96,14336,4096),(384,6144,4096),(48,28672,8192),(12288,1536,1536),(16384,5120,640),(32768,2048,8192),(640,5120,16384)]:
    a=torch.randn(m,k,device=dev,dtype=torch.bfloat16); b=torch.randn(n,k,device=dev,dtype=torch.bfloat16)
    put(kind='gemm',m=m,n=n,k=k,batch=1,s=timed(lambda: a@b.t()))
for (bt,m,n,k) in [(64,2048,2048,128),(64,2048,128,2048),(16,1024,4096,1024),(256,128,128,128),(32,512,512,64)]:
    a=torch.randn(bt,m,k,device=dev,dtype=torch.bfloat16); b=torch.randn(bt,n,k,device=dev,dtype=torch.bfloat16)
    put(kind='gemm',m=m,n=n,k=k,batch=bt,s=timed(lambda: torch.bmm(a,b.transpose(1,2))))
